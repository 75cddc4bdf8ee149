//! Calls for many locks at the same time.

use std::{
    future::poll_fn,
    hint,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::try_join_all};
use rlock_core::{LockClient, LockGuard};
use tokio::time::sleep;

use crate::PATIENCE;

/// Longer than a test holds its locks, so that none of them expires.
const LEASE: Duration = Duration::from_secs(30);

/// Acquires each key by a call of its own, all at once.
pub async fn acquire_all(client: &LockClient, keys: &[String]) -> Vec<LockGuard> {
    acquire_all_for(LEASE, client, keys).await
}

/// Like [`acquire_all`], with a lease of the caller's choice.
pub async fn acquire_all_for(
    lease: Duration,
    client: &LockClient,
    keys: &[String],
) -> Vec<LockGuard> {
    let calls = keys.iter().map(|key| {
        let lock = client.lock(key).lease(lease).wait(PATIENCE);
        async move { lock.acquire().await }
    });
    try_join_all(calls).await.expect("all locks are free")
}

/// Releases each guard by a call of its own, all at once.
pub async fn release_all(guards: impl IntoIterator<Item = LockGuard>) {
    let calls = guards.into_iter().map(LockGuard::release);
    try_join_all(calls).await.expect("all locks were held");
}

/// Acquires and releases all keys together, again and again, and checks that the tokens grow.
pub async fn acquire_and_release_all(client: &LockClient, keys: &[String], rounds: usize) {
    let mut last = vec![0; keys.len()];
    for _ in 0..rounds {
        let guards = acquire_all(client, keys).await;
        for (guard, last) in guards.iter().zip(&mut last) {
            assert!(guard.fencing_token() > *last, "tokens grow");
            *last = guard.fencing_token();
        }
        release_all(guards).await;
    }
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

/// Cancels the calls of all keys after this many polls, with time to send and to reply in between.
///
/// # Panics
///
/// Panics if the locks are acquired before: the requests are to be held.
pub async fn cancel_after_polls(client: &LockClient, keys: &[String], polls: usize) {
    let mut calls = Box::pin(acquire_all(client, keys));
    for _ in 0..polls {
        let acquired = calls.as_mut().now_or_never();
        assert!(acquired.is_none(), "the replies are held");
        sleep(Duration::from_millis(20)).await;
    }
    drop(calls);
    // The releases of the cancelled calls are sent in the background.
    sleep(Duration::from_millis(50)).await;
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
