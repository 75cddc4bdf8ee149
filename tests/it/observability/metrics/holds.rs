//! Holds: how they end, and why they are lost.

use std::{future::pending, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use rlock_core::{Lock, LockClient, LockError, LostCause, distributed_lock};
use rlock_testkit::{RedisServer, eventually};

use super::{assert_idle, is, of_lock, of_lock_by, until_idle};
use crate::common::{
    LASTING, LONG, assert_lost, client, ms, name,
    recorder::{keep_metrics, metric, values},
    resp2_client,
};

const LOST: &str = "rlock_lost_total";

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

fn lost(lock: &str, cause: &str) -> f64 {
    of_lock_by(LOST, lock, ("cause", cause))
}

#[tokio::test]
async fn a_hold_that_is_released_is_recorded_with_its_duration() {
    const LOCK: &str = "released:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("released:1").name(LOCK);
    lock.run(tokio::time::sleep(ms(60))).await.expect("free");
    assert_idle(LOCK);
    let guard = lock.acquire().await.expect("free");
    assert!(is(of_lock("rlock_held", LOCK), 1));
    guard.release().await.expect("held");
    drop(lock.acquire().await.expect("free"));
    let blocking = lock.clone();
    let body = move || blocking.run_blocking(|| ());
    let ran = tokio::task::spawn_blocking(body).await.expect("no panic");
    ran.expect("free");
    assert_eq!(ends(LOCK), [4, 0, 0, 0]);
    let longest = durations(LOCK, "released").into_iter().fold(0.0, f64::max);
    assert!((0.05..10.0).contains(&longest), "{longest}");
    assert_idle(LOCK);
}

#[distributed_lock(key = "annotated:<id>", client = client)]
async fn annotated(client: &LockClient, id: u64, fails: bool) -> Result<(), LockError> {
    assert!(!fails, "a bug in order {id}");
    Ok(())
}

#[tokio::test]
async fn a_hold_whose_body_panics_has_panicked() {
    const LOCK: &str = "annotated:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    annotated(&client, 1, false).await.expect("free");
    let panics = AssertUnwindSafe(annotated(&client, 2, true)).catch_unwind();
    panics.await.expect_err("it panics");
    let lock = client.lock("annotated:3").name(LOCK);
    let blocking = lock.clone();
    let body = move || blocking.run_blocking(|| panic!("a bug"));
    let panics = tokio::task::spawn_blocking(body).await;
    assert!(panics.expect_err("it panics").is_panic());
    let guard = lock.acquire().await.expect("released");
    let unwinds = tokio::spawn(async move {
        let _guard = guard;
        panic!("a bug");
    });
    assert!(unwinds.await.expect_err("it panics").is_panic());
    assert_eq!(ends(LOCK), [1, 0, 3, 0]);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_hold_whose_call_is_dropped_was_cancelled() {
    const LOCK: &str = "cancelled:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("cancelled:1").name(LOCK);
    let running = tokio::spawn(async move { lock.run(pending::<()>()).await });
    until_held(LOCK).await;
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());
    assert_eq!(ends(LOCK), [0, 0, 0, 1]);
    assert_idle(LOCK);
}

/// Loses a lock during a body, and during a guard.
async fn lose(lock: Lock, name: &'static str, lose: impl AsyncFn()) {
    let running = tokio::spawn({
        let lock = lock.clone();
        async move { lock.run(pending::<()>()).await }
    });
    until_held(name).await;
    lose().await;
    let outcome = running.await.expect("no panic");
    assert!(
        matches!(outcome, Err(LockError::Lost { .. })),
        "{outcome:?}"
    );
    until_idle(name).await;

    let guard = lock.acquire().await.expect("free");
    lose().await;
    guard.lost().await;
    until_idle(name).await;
    guard.release().await.expect_err("lost");
    assert_idle(name);
    assert_eq!(ends(name), [0, 2, 0, 0]);
}

#[tokio::test]
async fn a_hold_that_another_client_removed_is_lost_as_removed() {
    const EMBEDDED: &str = "removed-embedded:<id>";
    const SERVER: &str = "removed-server:<id>";
    keep_metrics();
    let embedded = LockClient::in_memory();
    let lock = embedded.lock("removed").name(EMBEDDED).lease(LASTING);
    lose(lock, EMBEDDED, async || {
        assert!(embedded.revoke("removed").expect("the embedded store"));
    })
    .await;
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("removed").name(SERVER).lease(LASTING);
    lose(lock, SERVER, async || {
        assert!(server.del(&name("removed")).await);
    })
    .await;
    for lock in [EMBEDDED, SERVER] {
        eventually(LONG, "the losses are counted", async || {
            is(lost(lock, "removed"), 2)
        })
        .await;
    }
}

#[tokio::test]
async fn a_loss_by_the_lease_or_by_max_hold_is_counted_by_its_cause() {
    const EXPIRED: &str = "expired:<id>";
    const LIMITED: &str = "limited:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("expired").name(EXPIRED).lease(ms(100));
    lose(lock.watchdog(false), EXPIRED, async || ()).await;
    let lock = client.lock("limited").name(LIMITED).lease(LASTING);
    let lock = lock.max_hold(Duration::from_millis(100));
    let outcome = lock.run(pending::<()>()).await;
    assert!(matches!(
        outcome,
        Err(LockError::Lost {
            cause: LostCause::MaxHold,
            ..
        })
    ));
    assert_eq!(ends(LIMITED), [0, 1, 0, 0]);
    for (lock, cause, count) in [(EXPIRED, "expired", 2), (LIMITED, "max_hold", 1)] {
        eventually(LONG, "the losses are counted", async || {
            is(lost(lock, cause), count)
        })
        .await;
        assert_idle(lock);
    }
}

#[tokio::test]
async fn a_hold_that_a_shutdown_ends_is_lost_as_closed() {
    const LOCK: &str = "closed:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("closed").name(LOCK);
    let guard = lock.acquire().await.expect("free");
    client.shutdown().await.expect("released");
    assert_idle(LOCK);
    assert!(is(lost(LOCK, "closed"), 1));
    drop(guard);
    assert_eq!(ends(LOCK), [0, 1, 0, 0]);
    assert_idle(LOCK);
}

/// The entry has left before the loss, so the hold counts as released.
#[tokio::test]
async fn a_loss_that_only_the_release_finds_is_counted() {
    const LOCK: &str = "found-late:<id>";
    keep_metrics();
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let lock = client.lock("late").name(LOCK).lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    assert!(server.del(&name("late")).await);
    guard.release().await.expect_err("lost");
    assert!(is(lost(LOCK, "removed"), 1));
    assert_eq!(ends(LOCK), [1, 0, 0, 0]);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_retained_lock_is_not_held() {
    const LOCK: &str = "retained:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("retained").name(LOCK).retain(LASTING);
    for _ in 0..3 {
        lock.run(async {
            assert!(is(of_lock("rlock_held", LOCK), 1));
        })
        .await
        .expect("free");
        assert_idle(LOCK);
    }
    assert_eq!(ends(LOCK), [3, 0, 0, 0]);
    let retained = client.lock("retained").acquire().await.expect("free");
    assert_lost_soon(&client, retained).await;
}

/// The loss of a retained lock is not the loss of a hold.
async fn assert_lost_soon(client: &LockClient, guard: rlock_core::LockGuard) {
    assert!(client.revoke("retained").expect("the embedded store"));
    assert_lost(&guard, LONG, LostCause::Removed).await;
}

#[tokio::test]
async fn shared_holds_and_permits_have_a_label_of_their_own() {
    const LOCK: &str = "modes:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("modes:1").name(LOCK);
    let held = |mode: Option<&'static str>| {
        let labels: Vec<_> = mode.map(|mode| ("mode", mode)).into_iter().collect();
        metric("rlock_held", &[&[("lock", LOCK)], &*labels].concat()).unwrap_or(0.0)
    };
    let readers = [
        lock.clone().shared().acquire().await.expect("free"),
        lock.clone().shared().acquire().await.expect("shared"),
    ];
    assert!(is(held(Some("shared")), 2) && is(held(None), 0));
    for reader in readers {
        reader.release().await.expect("held");
    }
    assert!(is(held(Some("shared")), 0));
    let permit = lock.clone().permits(2).acquire().await.expect("free");
    assert!(is(held(Some("permits")), 1) && is(held(Some("shared")), 0));
    drop(permit);
    let writer = lock.acquire().await.expect("free");
    assert!(is(held(None), 1));
    drop(writer);
    let labels = [("lock", LOCK), ("mode", "shared"), ("end", "released")];
    assert_eq!(values("rlock_hold_duration_seconds", &labels).len(), 2);
}
