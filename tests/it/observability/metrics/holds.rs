//! Holds: how they end, and why they are lost.

use std::{future::pending, panic::AssertUnwindSafe};

use futures_util::{FutureExt, future::join_all};
use rlock_core::{LockClient, LockError, LostCause, distributed_lock};
use rlock_testkit::{RedisServer, eventually};
use tokio::task::spawn_blocking;

use super::{assert_idle, is, of_lock, of_lock_by};
use crate::common::{
    LASTING, LONG, cause_of, client, ms, name,
    recorder::{keep_metrics, values},
    resp2_client,
};

fn durations(lock: &str, end: &str) -> Vec<f64> {
    let labels = [("lock", lock), ("end", end)];
    values("rlock_hold_duration_seconds", &labels)
}

/// Returns the number of holds by end: released, lost, panicked, cancelled.
fn ends(lock: &str) -> [usize; 4] {
    ["released", "lost", "panicked", "cancelled"].map(|end| durations(lock, end).len())
}

async fn until_held(lock: &str) {
    eventually(LONG, "it is held", async || {
        is(of_lock("rlock_held", lock), 1)
    })
    .await;
}

/// Waits until this many losses by the cause are counted, and no hold remains.
async fn until_lost(lock: &str, cause: &str, count: u32) {
    eventually(LONG, "the losses are counted", async || {
        let lost = of_lock_by("rlock_lost_total", lock, ("cause", cause));
        is(lost, count) && is(of_lock("rlock_held", lock), 0)
    })
    .await;
    assert_idle(lock);
}

#[distributed_lock(key = "annotated:<id>", client = client)]
async fn annotated(client: &LockClient, id: u64, fails: bool) -> Result<(), LockError> {
    assert!(!fails, "a bug in order {id}");
    Ok(())
}

#[tokio::test]
async fn each_end_of_a_hold_is_recorded_with_its_duration() {
    const LOCK: &str = "annotated:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("annotated:3").label(LOCK).lease(LASTING);
    // Released.
    lock.run(tokio::time::sleep(ms(60))).await.expect("free");
    assert_idle(LOCK);
    let guard = lock.acquire().await.expect("free");
    assert!(is(of_lock("rlock_held", LOCK), 1));
    guard.release().await.expect("held");
    drop(lock.acquire().await.expect("free"));
    let blocking = lock.clone();
    let body = move || blocking.run_blocking(|| ());
    let ran = spawn_blocking(body).await.expect("no panic");
    ran.expect("free");
    annotated(&client, 1, false).await.expect("free");
    assert_eq!(ends(LOCK), [5, 0, 0, 0]);
    let longest = durations(LOCK, "released").into_iter().fold(0.0, f64::max);
    assert!(longest >= 0.05, "{longest}");
    // Panicked.
    let panics = AssertUnwindSafe(annotated(&client, 2, true)).catch_unwind();
    panics.await.expect_err("it panics");
    let blocking = lock.clone();
    let body = move || blocking.run_blocking(|| panic!("a bug"));
    let panics = spawn_blocking(body).await;
    assert!(panics.expect_err("it panics").is_panic());
    let guard = lock.acquire().await.expect("released");
    let unwinds = tokio::spawn(async move {
        let _guard = guard;
        panic!("a bug");
    });
    assert!(unwinds.await.expect_err("it panics").is_panic());
    assert_eq!(ends(LOCK), [5, 0, 3, 0]);
    assert_idle(LOCK);
    // Cancelled.
    let running = tokio::spawn(async move { lock.run(pending::<()>()).await });
    until_held(LOCK).await;
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());
    assert_eq!(ends(LOCK), [5, 0, 3, 1]);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_loss_is_counted_by_its_cause() {
    const LATE: &str = "found-late:<id>";
    const SERVER: &str = "removed-server:<id>";
    const EXPIRED: &str = "expired:<id>";
    const LIMITED: &str = "limited:<id>";
    const CLOSED: &str = "closed:<id>";
    keep_metrics();
    let server = RedisServer::start();
    let on_server = client(&server).await;
    let lock = on_server.lock("removed").label(SERVER).lease(LASTING);
    let delete = async || assert!(server.del(&name("removed")).await);
    let body = lock.clone();
    let body = tokio::spawn(async move { body.run(pending::<()>()).await });
    until_held(SERVER).await;
    delete().await;
    let outcome = body.await.expect("no panic");
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    until_lost(SERVER, "removed", 1).await;
    let guard = lock.acquire().await.expect("free");
    delete().await;
    guard.lost().await;
    until_lost(SERVER, "removed", 2).await;
    drop(guard);
    assert_eq!(ends(SERVER), [0, 2, 0, 0]);

    // Only the release finds this loss, after the entry has left, so the hold counts as released.
    let unnotified = resp2_client(&server).await;
    let lock = unnotified.lock("removed").label(LATE).lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    delete().await;
    guard.release().await.expect_err("lost");
    until_lost(LATE, "removed", 1).await;
    assert_eq!(ends(LATE), [1, 0, 0, 0]);

    let client = LockClient::in_memory();
    let lock = client.lock("expired").label(EXPIRED).lease(ms(100));
    let expired = lock.watchdog(false).run(pending::<()>()).await;
    assert_eq!(cause_of(expired), Some(LostCause::Expired));
    until_lost(EXPIRED, "expired", 1).await;

    let lock = client.lock("limited").label(LIMITED).lease(LASTING);
    let limited = lock.max_hold(ms(100)).run(pending::<()>()).await;
    assert_eq!(cause_of(limited), Some(LostCause::MaxHold));
    until_lost(LIMITED, "max_hold", 1).await;

    let lock = client.lock("closed").label(CLOSED).lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    client.shutdown().await.expect("released");
    until_lost(CLOSED, "closed", 1).await;
    drop(guard);
    for lock in [EXPIRED, LIMITED, CLOSED] {
        assert_eq!(ends(lock), [0, 1, 0, 0], "{lock}");
        assert_idle(lock);
    }
}

#[tokio::test]
async fn shared_holds_and_permits_have_a_label_of_their_own() {
    const LOCK: &str = "modes:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("modes:1").label(LOCK).lease(LASTING);
    let held = |mode| of_lock_by("rlock_held", LOCK, ("mode", mode));
    let shared = [lock.clone(), lock.clone()].map(|lock| async {
        let reader = lock.shared().acquire().await;
        reader.expect("shared")
    });
    let readers = join_all(shared).await;
    assert!(is(held("shared"), 2) && is(of_lock("rlock_held", LOCK), 0));
    drop(readers);
    let permit = lock.permits(2).acquire().await.expect("free");
    assert!(is(held("permits"), 1) && is(held("shared"), 0));
    drop(permit);
    let labels = [("lock", LOCK), ("mode", "shared"), ("end", "released")];
    assert_eq!(values("rlock_hold_duration_seconds", &labels).len(), 2);
}
