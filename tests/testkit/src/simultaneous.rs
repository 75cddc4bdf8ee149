//! Makes calls for many locks at the same time.

use std::{
    future::poll_fn,
    hint,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use rlock_core::{LockClient, LockGuard};

use crate::PATIENCE;

/// Longer than a test holds its locks, so that none of them expires.
const LEASE: Duration = Duration::from_secs(600);

/// Acquires each key by a call of its own, all at once.
pub async fn acquire_all(client: &LockClient, keys: &[String]) -> Vec<LockGuard> {
    let calls = keys.iter().map(|key| {
        let lock = client.lock(key).lease(LEASE).wait(PATIENCE);
        async move { lock.acquire().await }
    });
    try_join_all(calls).await.expect("all locks are free")
}

/// Releases each guard by a call of its own, all at once.
pub async fn release_all(guards: impl IntoIterator<Item = LockGuard>) {
    let calls = guards.into_iter().map(LockGuard::release);
    try_join_all(calls).await.expect("all locks were held");
}

/// Cancels one acquire per round while it may be leaving.
///
/// The runtime needs a second thread: the release of a cancelled acquire comes from there.
pub async fn cancel_while_sending(client: &LockClient, keys: &[String], rounds: u64) {
    for (round, key) in (0..rounds).zip(keys.iter().cycle()) {
        let lock = client.lock(key).lease(LEASE);
        dropped_after(Duration::from_micros(round % 97), lock.try_acquire()).await;
    }
}

/// Polls once, and drops the future this much later, even if the poll completed it.
async fn dropped_after<F: Future>(time: Duration, future: F) {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        let started = Instant::now();
        // Yielding to the runtime would let it poll the future again.
        while started.elapsed() < time {
            hint::spin_loop();
        }
        Poll::Ready(())
    })
    .await;
}
