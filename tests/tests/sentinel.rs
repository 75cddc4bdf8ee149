//! A master and its replica, watched by three Sentinels: clients go to whichever is the master.

mod common;

use std::time::Duration;

use rlock_core::{LockClient, LockError, LostCause};
use rlock_tests::{FAILOVER, SERVICE, Trio, eventually, within};

use common::{
    LASTING, LONG, assert_lost, assert_soon_free, assert_soon_in_line, connect, count, name,
};

/// Long enough to be renewed at the new master.
const LEASE: Duration = Duration::from_secs(15);

async fn client(trio: &Trio) -> LockClient {
    connect(&trio.url()).await
}

#[tokio::test]
async fn whoever_knows_the_sentinels_finds_the_master() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let guard = one.lock("k").lease(LASTING).acquire().await.expect("free");
    assert_eq!(count(&trio.master, &guard).await, Some(1));
    let waiting = other.lock("k").wait(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    assert_soon_in_line(&trio.master, "k", 1).await;
    let before = guard.fencing_token();
    guard.release().await.expect("held");
    let next = within(LONG, "its turn", waiting).await.expect("no panic");
    let next = next.expect("its turn");
    assert!(next.fencing_token() > before);
    next.release().await.expect("held");
    assert_soon_free(&trio.master, "k").await;
}

#[tokio::test]
async fn holders_and_waiters_follow_a_failover() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let lock = one.lock("k").lease(LEASE);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    let waiting = other.lock("k").wait(FAILOVER * 2);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    assert_soon_in_line(&trio.master, "k", 1).await;
    trio.replica.catch_up_with(&trio.master).await;
    trio.master.kill();
    trio.failed_over().await;
    eventually(LONG, "it is renewed at the new master", async || {
        trio.replica.pttl(&name("k")).await > 14_000
    })
    .await;
    assert!(guard.is_valid() && !waiting.is_finished());
    assert_eq!(count(&trio.replica, &guard).await, Some(2));
    let before = guard.fencing_token();
    nested.release().await.expect("held");
    guard.release().await.expect("held");
    let next = within(LONG, "its turn", waiting).await.expect("no panic");
    let next = next.expect("its turn");
    assert!(next.fencing_token() > before);
    next.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_that_had_not_reached_the_replica_is_lost_and_its_holder_knows() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let before = one.lock("k").acquire().await.expect("free");
    let token = before.fencing_token();
    before.release().await.expect("held");
    trio.replica.catch_up_with(&trio.master).await;
    trio.replica.pause();
    // What is sent to a connection reaches the replica when it goes on.
    assert_eq!(trio.master.kill_clients("replica").await, 1);
    let guard = one.lock("k").lease(LEASE).acquire().await.expect("free");
    trio.master.kill();
    trio.replica.resume();
    trio.failed_over().await;
    assert_lost(&guard, LEASE + LONG, LostCause::Removed).await;
    let next = other.lock("k").wait(FAILOVER).acquire().await;
    assert!(next.expect("free").fencing_token() > token);
}

#[tokio::test]
async fn a_master_that_is_demoted_on_purpose_is_left() {
    let trio = Trio::start().await;
    let client = client(&trio).await;
    let guard = client.lock("k").lease(LEASE).acquire().await.expect("free");
    trio.replica.catch_up_with(&trio.master).await;
    let () = trio.sentinels[0]
        .command(&["SENTINEL", "FAILOVER", SERVICE])
        .await;
    trio.failed_over().await;
    eventually(FAILOVER, "it is renewed at the new master", async || {
        trio.replica.pttl(&name("k")).await > 14_000
    })
    .await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    assert_soon_free(&trio.replica, "k").await;
    let again = client
        .lock("k")
        .wait(FAILOVER)
        .acquire()
        .await
        .expect("free");
    assert_eq!(count(&trio.replica, &again).await, Some(1));
}

#[tokio::test]
async fn sentinels_that_are_gone_or_stand_still_are_no_obstacle() {
    let trio = Trio::start().await;
    trio.sentinels[0].kill();
    trio.sentinels[1].pause();
    let client = client(&trio).await;
    let guard = client.lock("k").acquire().await.expect("free");
    guard.release().await.expect("held");
    trio.sentinels[1].resume();
}

#[tokio::test]
async fn a_service_that_nobody_knows_and_sentinels_that_are_not_there_are_told() {
    let trio = Trio::start().await;
    let url = trio.url().replace(SERVICE, "invoices");
    let error = LockClient::connect(&url)
        .await
        .expect_err("no such service");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(
        shown.contains("invoices") && shown.contains("No such master"),
        "{shown}"
    );
    for sentinel in &trio.sentinels {
        sentinel.kill();
    }
    let error = LockClient::connect(&trio.url())
        .await
        .expect_err("nobody there");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(SERVICE), "{error}");
}
