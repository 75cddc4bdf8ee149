//! The metrics of locks: names, labels and counts. Each test uses its own lock names. Tests of metrics without the
//! label `lock` run in their own process.

mod acquires;
mod elections;
mod holds;
mod servers;

use rlock_core::LockClient;
use rlock_testkit::eventually;

use crate::common::{
    LONG,
    alone::alone,
    log::{keep_log, logged_of},
    recorder::{keep_metrics, metric, series, values},
};

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

#[tokio::test]
async fn locks_are_labelled_by_their_names_and_never_by_their_keys() {
    const KEY: &str = "secret-4711";
    keep_metrics();
    let client = LockClient::in_memory();
    client.lock(KEY).run(async {}).await.expect("free");
    assert!(metric("rlock_held", &[("lock", "unnamed")]).is_some());
    for (name, labels) in series() {
        for (label, value) in labels {
            assert!(!value.contains(KEY), "{name}: {label}={value}");
        }
    }
    // Two sites of the same name share their metrics.
    for n in 0..3 {
        let name: &'static str = String::from("same-name:<id>").leak();
        let lock = client.lock(format!("same-name:{n}")).label(name);
        lock.run(async {}).await.expect("free");
    }
    let labels = [("lock", "same-name:<id>"), ("outcome", "granted")];
    let granted = values("rlock_acquire_duration_seconds", &labels);
    assert_eq!(granted.len(), 3);
}

#[tokio::test]
async fn beyond_two_hundred_names_locks_are_counted_as_other_with_one_warning() {
    alone!(beyond_two_hundred_names_locks_are_counted_as_other_with_one_warning);
    keep_log();
    keep_metrics();
    let client = LockClient::in_memory();
    for round in 0..2 {
        for n in 0..210 {
            let name: &'static str = format!("template-{n}:<id>").leak();
            let lock = client.lock(format!("k:{n}")).label(name);
            let guard = lock.acquire().await.expect("free");
            let label = if n < 200 { name } else { "other" };
            assert!(is(of_lock("rlock_held", label), 1), "{round}: {n}");
            guard.release().await.expect("held");
        }
    }
    let all = series();
    let labels = all.iter().flat_map(|(_, labels)| labels);
    let locks = labels.filter(|(label, _)| label == "lock");
    let mut locks: Vec<_> = locks.map(|(_, value)| value).collect();
    locks.sort();
    locks.dedup();
    assert_eq!(locks.len(), 201, "{locks:?}");
    let warnings = logged_of("too many lock labels");
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("WARN"), "{}", warnings[0]);
}
