//! A call that waits for a lock of its own process. The error reports it, and how to avoid it.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisCluster, RedisServer};

use crate::common::{LASTING, client, ms, worker};

/// Returns the error of a call that waits for the lock in vain.
async fn timed_out(client: &LockClient, key: &str, wait: Duration) -> String {
    let outcome = client.lock(key).wait(wait).acquire().await;
    let error = outcome.expect_err("it is held");
    // Existing programs have this pattern without `..`.
    let LockError::Timeout {
        key: asked,
        waited,
        remaining,
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(asked, key);
    assert!(*waited >= wait);
    assert!(remaining.is_some_and(|left| left <= LASTING));
    error.to_string()
}

fn assert_own(said: &str) {
    for part in [
        "this client itself, ",
        "`guard.scope(…)`",
        "`in_current_scope()`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

fn assert_other_of_process(said: &str) {
    let this_process = format!("(pid {})", std::process::id());
    assert!(said.contains(&this_process), "{said}");
    assert!(!said.contains("this client"), "{said}");
}

fn assert_foreign(said: &str) {
    let this_process = format!("(pid {})", std::process::id());
    for part in ["this client", &this_process] {
        assert!(!said.contains(part), "{said}");
    }
    assert!(said.contains("try again later"), "{said}");
}

/// Checks all ways in which a call waits for itself, or for another client of its process.
async fn assert_own_holders_are_named(one: &LockClient, other: &LockClient) {
    let guard = one.lock("k").lease(LASTING).acquire().await.expect("free");
    for wait in [ms(0), ms(50), ms(300)] {
        assert_own(&timed_out(one, "k", wait).await);
    }
    assert_other_of_process(&timed_out(other, "k", ms(400)).await);
    // Waiters behind the first get the same error.
    let (first, second) = tokio::join!(
        timed_out(other, "k", ms(400)),
        timed_out(other, "k", ms(300))
    );
    assert_other_of_process(&first);
    assert_other_of_process(&second);
    guard.release().await.expect("held");
}

#[tokio::test]
async fn in_memory_the_error_says_that_the_holder_is_of_this_process() {
    let builder = || LockClient::builder();
    let one = builder().connect("memory:own").await.expect("there");
    let other = builder().connect("memory:own").await.expect("there");
    assert_own_holders_are_named(&one, &other).await;
    // A lock of the same key in another store does not matter.
    let elsewhere = LockClient::in_memory();
    let _held = elsewhere.lock("k").acquire().await.expect("free");
    let guard = one.lock("k").lease(LASTING).acquire().await.expect("free");
    assert_other_of_process(&timed_out(&other, "k", ms(300)).await);
    drop(guard);
}

#[tokio::test]
async fn on_a_server_the_error_says_that_the_holder_is_of_this_process() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    assert_own_holders_are_named(&one, &other).await;
}

#[tokio::test]
async fn on_a_quorum_the_error_says_that_the_holder_is_of_this_process() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let urls = || servers.iter().map(RedisServer::url);
    let one = LockClient::quorum(urls()).await.expect("they are up");
    let other = LockClient::quorum(urls()).await.expect("they are up");
    assert_own_holders_are_named(&one, &other).await;
}

#[tokio::test]
async fn on_a_cluster_the_error_says_that_the_holder_is_of_this_process() {
    let cluster = RedisCluster::start().await;
    let one = LockClient::connect(&cluster.url()).await.expect("it is up");
    let other = LockClient::connect(&cluster.url()).await.expect("it is up");
    assert_own_holders_are_named(&one, &other).await;
}

/// Checks that a call that begins after a hold has ended does not name that hold.
async fn assert_the_present_hold_is_named(holder: &LockClient, client: &LockClient) {
    for name in ["first", "second"] {
        let lock = holder.lock("k").name(name).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        let said = timed_out(client, "k", ms(300)).await;
        assert!(said.contains(&format!("in `{name}`")), "{said}");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn the_error_names_the_present_hold_and_not_an_earlier_one() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    assert_the_present_hold_is_named(&one, &one).await;
    assert_the_present_hold_is_named(&one, &other).await;
}

/// A client of this process with the same key in another store is not the holder.
#[tokio::test]
async fn a_lock_of_another_process_is_plain_contention() {
    let server = RedisServer::start();
    let elsewhere = LockClient::in_memory();
    let _same_key = elsewhere.lock("k").acquire().await.expect("free");
    let mut holder = worker(&["hold", &server.url(), "k", "30000"]);
    holder.expect_line(crate::common::LONG, "holding").await;
    let client = client(&server).await;
    assert_foreign(&timed_out(&client, "k", ms(100)).await);
}

#[tokio::test]
async fn a_guard_an_annotated_call_and_a_bare_spawn_get_a_hint() {
    #[distributed_lock(key = "k", wait = "100ms")]
    async fn pay() -> Result<(), LockError> {
        Ok(())
    }
    let client = LockClient::in_memory();
    let guard = client.lock("k").acquire().await.expect("free");
    let error = client.scope(pay()).await.expect_err("it is held");
    assert_own(&error.to_string());
    client.scope(guard.scope(pay())).await.expect("the way out");
    guard.release().await.expect("held");

    let lock = client.lock("k");
    let body = async {
        let nested = client.lock("k").wait(ms(100));
        tokio::spawn(async move { nested.acquire().await.map(drop) }).await
    };
    let spawned = lock.run(body).await.expect("free").expect("no panic");
    assert_own(&spawned.expect_err("it is held").to_string());
}
