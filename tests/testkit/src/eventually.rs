//! Waits for what other processes and threads do, with a limit.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls `condition` until it holds.
///
/// # Panics
///
/// Panics with `what` if the condition has not held by `deadline`.
pub async fn eventually(deadline: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    let held = async {
        while !condition().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    assert!(
        tokio::time::timeout(deadline, held).await.is_ok(),
        "not so within {deadline:?} (waited {:?}): {what}",
        started.elapsed(),
    );
}

/// Awaits `future`.
///
/// # Panics
///
/// Panics with `what` if `deadline` passes first.
pub async fn within<T>(deadline: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = tokio::time::timeout(deadline, future).await else {
        panic!("not done within {deadline:?}: {what}")
    };
    output
}
