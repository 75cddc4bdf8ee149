//! Speed checks that tolerate a busy machine.
//!
//! An operation of a few milliseconds sometimes takes a second there, but not in every attempt.
//! Delayed waiters retry, so the number of requests depends on the speed, too.

use std::{
    any::Any,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
    time::Duration,
};

use futures_util::FutureExt;

const TRIES: u32 = 3;

/// The panic of [`assert_within`] and [`assert_at_most`].
struct TooSlow(String);

/// Asserts a limit of time, in a test that [`in_time`] runs.
#[track_caller]
pub(crate) fn assert_within(took: Duration, bound: Duration, what: impl Debug) {
    if took >= bound {
        panic_any(TooSlow(format!("{what:?} took {took:?}, not {bound:?}")));
    }
}

/// Asserts a limit of requests, in a test that [`in_time`] runs.
#[track_caller]
pub(crate) fn assert_at_most(cost: u64, bound: u64, what: impl Debug) {
    if cost > bound {
        panic_any(TooSlow(format!("{what:?} cost {cost}, not {bound}")));
    }
}

/// Runs the test again if only a speed check failed.
pub(crate) async fn in_time<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for attempt in 1.. {
        if judge(attempt, AssertUnwindSafe(test()).catch_unwind().await) {
            return;
        }
    }
}

/// Like [`in_time`], for a test that makes its own runtime.
pub(crate) fn in_time_blocking(test: impl Fn()) {
    for attempt in 1.. {
        if judge(attempt, catch_unwind(AssertUnwindSafe(&test))) {
            return;
        }
    }
}

/// Returns whether the test has passed.
fn judge(attempt: u32, outcome: Result<(), Box<dyn Any + Send>>) -> bool {
    let Err(panic) = outcome else {
        return true;
    };
    match panic.downcast::<TooSlow>() {
        Ok(slow) if attempt < TRIES => eprintln!("attempt {attempt}: {}", slow.0),
        Ok(slow) => panic!("attempt {attempt}: {}", slow.0),
        Err(panic) => resume_unwind(panic),
    }
    false
}
