//! The metrics of locks. Each test uses its own lock names. Tests of metrics without the label
//! `lock` run in their own process.

mod acquires;
mod holds;
mod names;
mod servers;

use rlock_testkit::eventually;

use crate::common::{LONG, recorder::metric};

/// Returns a counter or a gauge of this lock; 0 if there is no such series.
fn of_lock(name: &str, lock: &str) -> f64 {
    metric(name, &[("lock", lock)]).unwrap_or(0.0)
}

/// Like [`of_lock`], with a further label.
fn of_lock_by(name: &str, lock: &str, label: (&str, &str)) -> f64 {
    metric(name, &[("lock", lock), label]).unwrap_or(0.0)
}

fn is(value: f64, expected: u32) -> bool {
    (value - f64::from(expected)).abs() < f64::EPSILON
}

/// Asserts that no call waits for this lock or holds it.
#[track_caller]
fn assert_idle(lock: &str) {
    for gauge in ["rlock_waiting", "rlock_held"] {
        let value = of_lock(gauge, lock);
        assert!(is(value, 0), "{gauge} of {lock}: {value}");
    }
}

/// Waits until the loss of this lock is noticed.
async fn until_idle(lock: &str) {
    eventually(LONG, "the loss is noticed", async || {
        is(of_lock("rlock_held", lock), 0)
    })
    .await;
    assert_idle(lock);
}

/// Waits until this many calls wait for this lock.
async fn until_waiting(lock: &str, calls: u32) {
    eventually(LONG, "the calls wait", async || {
        is(of_lock("rlock_waiting", lock), calls)
    })
    .await;
}
