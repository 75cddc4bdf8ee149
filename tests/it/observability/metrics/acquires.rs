//! Acquires: their outcomes, their waits, and the cause of each hand-over.

use std::{
    mem,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rlock_core::{LockClient, Reentry};
use rlock_testkit::RedisServer;

use super::{assert_idle, is, of_lock, of_lock_by, until_idle, until_waiting};
use crate::common::{
    LASTING, LONG, acquiring, client, its_turn, ms, name,
    recorder::{keep_metrics, values},
    resp2_client,
};

const ACQUIRES: &str = "rlock_acquire_duration_seconds";
const HANDOVERS: &str = "rlock_handovers_total";

fn durations(lock: &str, outcome: &str) -> Vec<f64> {
    values(ACQUIRES, &[("lock", lock), ("outcome", outcome)])
}

/// Returns two clients of one embedded store.
async fn two_clients() -> (LockClient, LockClient) {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let store = STORES.fetch_add(1, Ordering::Relaxed);
    let url = format!("memory:metrics-{store}");
    let connect = async || LockClient::connect(&url).await.expect("a client");
    (connect().await, connect().await)
}

/// Returns the number of hand-overs of each kind.
fn handovers(lock: &str) -> [f64; 4] {
    ["local", "release", "message", "timer"].map(|by| of_lock_by(HANDOVERS, lock, ("by", by)))
}

#[track_caller]
fn assert_handovers(lock: &str, expected: [u32; 4]) {
    let counted = handovers(lock);
    let are_equal = counted.iter().zip(expected).all(|(n, m)| is(*n, m));
    assert!(are_equal, "{counted:?}, expected {expected:?}");
}

#[tokio::test]
async fn each_outcome_of_an_acquire_is_recorded_with_its_duration() {
    const LOCK: &str = "outcomes:<id>";
    const WAIT: Duration = Duration::from_millis(100);
    keep_metrics();
    let (one, other) = two_clients().await;
    let lock = |client: &LockClient| client.lock("outcomes:1").name(LOCK).lease(LASTING);
    let guard = lock(&one).acquire().await.expect("free");
    assert_eq!(durations(LOCK, "granted").len(), 1);

    for client in [&one, &other] {
        let lock = lock(client).wait(WAIT);
        lock.acquire().await.expect_err("it is held");
        let busy = lock.try_acquire().await.expect("a reply");
        assert!(busy.is_none());
        let lock = lock.wait(Duration::ZERO);
        lock.acquire().await.expect_err("it is held");
    }
    let timeouts = durations(LOCK, "timeout");
    assert_eq!(timeouts.len(), 2, "{timeouts:?}");
    for seconds in timeouts {
        assert!((0.1..10.0).contains(&seconds), "{seconds}");
    }
    assert_eq!(durations(LOCK, "busy").len(), 4);
    assert!(is(of_lock("rlock_contended_total", LOCK), 6));

    let waiting = acquiring(lock(&other));
    until_waiting(LOCK, 1).await;
    waiting.abort();
    assert!(waiting.await.expect_err("aborted").is_cancelled());
    assert_eq!(durations(LOCK, "cancelled").len(), 1);

    guard.release().await.expect("held");
    one.shutdown().await.expect("released");
    lock(&one).acquire().await.expect_err("closed");
    assert_eq!(durations(LOCK, "error").len(), 1);
    assert_idle(LOCK);
}

#[tokio::test]
async fn calls_that_wait_are_counted_until_they_end() {
    const LOCK: &str = "waiting:<id>";
    keep_metrics();
    let (one, other) = two_clients().await;
    let lock = |client: &LockClient| client.lock("waiting:1").name(LOCK).lease(LASTING);
    let guard = lock(&one).acquire().await.expect("free");
    assert!(is(of_lock("rlock_held", LOCK), 1));
    let calls = [&one, &one, &other, &other].map(|client| acquiring(lock(client)));
    until_waiting(LOCK, 4).await;
    guard.release().await.expect("held");
    let tasks = calls.map(|call| async move { its_turn(call).await.release().await });
    for released in futures_util::future::join_all(tasks).await {
        released.expect("held");
    }
    assert!(is(of_lock("rlock_contended_total", LOCK), 4));
    assert_eq!(durations(LOCK, "granted").len(), 5);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_shutdown_ends_the_waits() {
    const LOCK: &str = "shutdown:<id>";
    keep_metrics();
    let (one, other) = two_clients().await;
    let lock = |client: &LockClient| client.lock("shutdown:1").name(LOCK).lease(LASTING);
    let guard = lock(&one).acquire().await.expect("free");
    let calls = [&one, &other].map(|client| acquiring(lock(client)));
    until_waiting(LOCK, 2).await;
    other.shutdown().await.expect("released");
    one.shutdown().await.expect("released");
    for call in calls {
        call.await.expect("no panic").expect_err("closed");
    }
    assert_eq!(durations(LOCK, "error").len(), 2);
    assert_idle(LOCK);
    guard.release().await.expect_err("lost");
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_nested_acquire_is_counted_as_a_reentry_and_as_no_other_acquire() {
    const LOCK: &str = "nested:<id>";
    keep_metrics();
    for reentry in [Reentry::Local, Reentry::Counted] {
        let client = LockClient::builder().reentry(reentry).in_memory();
        let client = client.expect("a client");
        let lock = client.lock("nested:1").name(LOCK);
        let nested = async {
            lock.run(async {}).await.expect("entered");
            lock.try_acquire().await.expect("a reply").expect("entered")
        };
        let inner = lock.run(nested).await.expect("free");
        assert!(is(of_lock("rlock_held", LOCK), 1), "one entry remains");
        drop(inner);
    }
    assert!(is(of_lock("rlock_reentries_total", LOCK), 4));
    assert_eq!(durations(LOCK, "granted").len(), 2);
    assert!(is(of_lock("rlock_contended_total", LOCK), 0));
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_hand_over_within_the_process_is_local() {
    const LOCK: &str = "by-local:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("by-local:1").name(LOCK);
    let guard = lock.acquire().await.expect("free");
    let calls = [(); 2].map(|()| acquiring(lock.clone()));
    until_waiting(LOCK, 2).await;
    guard.release().await.expect("held");
    for call in calls {
        its_turn(call).await.release().await.expect("held");
    }
    assert_handovers(LOCK, [2, 0, 0, 0]);
    assert_idle(LOCK);
}

/// A waiter without renewal does not accept a lock whose lease has already begun.
#[tokio::test]
async fn a_release_that_brings_the_lock_to_the_next_local_waiter_is_a_hand_over_by_release() {
    const LOCK: &str = "by-release:<id>";
    keep_metrics();
    let server = RedisServer::start();
    let on_server = client(&server).await;
    for client in [LockClient::in_memory(), on_server] {
        let lock = client.lock("by-release:1").name(LOCK).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        let call = acquiring(lock.watchdog(false));
        until_waiting(LOCK, 1).await;
        guard.release().await.expect("held");
        its_turn(call).await.release().await.expect("held");
    }
    assert_handovers(LOCK, [0, 2, 0, 0]);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_lock_of_another_process_comes_by_message() {
    const LOCK: &str = "by-message:<id>";
    keep_metrics();
    let server = RedisServer::start();
    let on_server = (client(&server).await, client(&server).await);
    for (one, other) in [two_clients().await, on_server] {
        let lock = |client: &LockClient| client.lock("by-message:1").name(LOCK).lease(LASTING);
        let guard = lock(&one).acquire().await.expect("free");
        let call = acquiring(lock(&other));
        until_waiting(LOCK, 1).await;
        tokio::time::sleep(ms(100)).await;
        guard.release().await.expect("held");
        its_turn(call).await.release().await.expect("held");
    }
    assert_handovers(LOCK, [0, 0, 2, 0]);
    assert_idle(LOCK);
}

/// The server notifies RESP3 clients of the deletion.
#[tokio::test]
async fn a_lock_that_was_deleted_comes_by_message_and_without_reports_by_timer() {
    const REPORTED: &str = "deleted-told:<id>";
    const UNREPORTED: &str = "deleted-untold:<id>";
    keep_metrics();
    let server = RedisServer::start();
    let notified = (client(&server).await, client(&server).await);
    let untold = (resp2_client(&server).await, resp2_client(&server).await);
    for (lock, (one, other), expected) in [
        (REPORTED, notified, [0, 0, 1, 0]),
        (UNREPORTED, untold, [0, 0, 0, 1]),
    ] {
        let handle = |client: &LockClient| client.lock(lock).name(lock).lease(LASTING);
        let guard = handle(&one).acquire().await.expect("free");
        let call = acquiring(handle(&other));
        until_waiting(lock, 1).await;
        tokio::time::sleep(ms(100)).await;
        assert!(server.del(&name(lock)).await);
        its_turn(call).await.release().await.expect("held");
        assert_handovers(lock, expected);
        drop(guard);
        until_idle(lock).await;
    }
}

#[tokio::test]
async fn a_lock_whose_holder_is_dead_comes_by_timer() {
    const LOCK: &str = "by-timer:<id>";
    keep_metrics();
    let (dead, other) = two_clients().await;
    let lock = |client: &LockClient| client.lock("by-timer:1").name(LOCK);
    let short = lock(&dead).lease(ms(500)).watchdog(false);
    mem::forget(short.acquire().await.expect("free"));
    let guard = its_turn(acquiring(lock(&other).wait(LONG))).await;
    assert_handovers(LOCK, [0, 0, 0, 1]);
    guard.release().await.expect("held");
    until_idle(LOCK).await;
}
