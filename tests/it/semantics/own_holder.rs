//! What a time-out says about the holder of the lock and about its own call, and how to avoid it.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisCluster, RedisServer, within};
use tokio::sync::Barrier;

use crate::common::{LASTING, LONG, acquiring, begin, client, hold, ms, worker};

const HINT: &str = "`guard.scope(…)`, or in a spawned task by `in_current_scope()`";

/// Returns the error of a call that waits for the lock in vain.
async fn timed_out(client: &LockClient, key: &str, wait: Duration) -> String {
    let outcome = client.lock(key).wait(wait).acquire().await;
    let error = outcome.expect_err("it is held");
    let LockError::Timeout {
        key: asked,
        waited,
        remaining,
        details,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(asked, key);
    assert!(*waited >= wait);
    assert!(remaining.is_some_and(|left| left <= LASTING));
    let said = error.to_string();
    assert!(said.contains(&**details), "{said}");
    // The field and the text name the same holder.
    match error.holder() {
        Some(holder) => assert!(said.contains(&format!(", for {}.", holder.held_for.as_secs()))),
        None => assert!(!said.contains("; it is held by"), "{said}"),
    }
    said
}

/// Asserts that the text has each of the former parts, and none of the latter.
fn assert_says(said: &str, parts: &[&str], others: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
    for other in others {
        assert!(!said.contains(other), "{other}: {said}");
    }
}

fn assert_own(said: &str) {
    let parts = ["; it is held by another call of this client, ", HINT];
    assert_says(said, &parts, &["this call holds", "lock_all"]);
}

fn assert_other_of_process(said: &str) {
    let this_process = format!("(pid {})", std::process::id());
    let parts = [
        "; it is held by another client of this process, ",
        &this_process,
    ];
    assert_says(said, &parts, &["this client", "scope", "this call"]);
}

fn assert_foreign(said: &str) {
    let this_process = format!("(pid {})", std::process::id());
    let others = [
        "this client",
        "this process",
        &this_process,
        "scope",
        "this call",
    ];
    assert_says(said, &["try again later"], &others);
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
    holder.expect_line(LONG, "holding").await;
    let client = client(&server).await;
    let said = timed_out(&client, "k", ms(1000)).await;
    assert_foreign(&said);
    assert_says(&said, &["; it is held by `", " (pid "], &[]);
}

/// Both calls hold a lock, and wait for that of the other. Returns what they say.
async fn deadlock(one: &LockClient, other: &LockClient) -> [String; 2] {
    let [both_hold, both_failed] = [(); 2].map(|()| Barrier::new(2));
    let nest = async |client: &LockClient, outer: &str, inner: &str| {
        let body = async {
            both_hold.wait().await;
            let said = timed_out(client, inner, ms(400)).await;
            both_failed.wait().await;
            said
        };
        let outer = client.lock(outer).lease(LASTING);
        outer.run(body).await.expect("free")
    };
    let both = async { tokio::join!(nest(one, "a", "b"), nest(other, "b", "a")) };
    within(LONG, "they time out", both).await.into()
}

#[tokio::test]
async fn two_calls_that_nest_in_different_orders_say_what_they_hold_and_how_to_avoid_it() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for (second, holder) in [
        (&one, "another call of this client, for "),
        (&other, "another client of this process, `"),
    ] {
        for (said, held) in deadlock(&one, second).await.iter().zip(["a", "b"]) {
            let held = format!("; this call holds `{held}`: ");
            assert_says(
                said,
                &[holder, &held, "`lock_all`, or in one order"],
                &["scope"],
            );
        }
    }
}

#[tokio::test]
async fn a_call_in_several_locks_names_them_and_has_no_advice_if_it_did_not_wait() {
    let client = LockClient::in_memory();
    let _taken = hold(&client, "k").await;
    let outer = client.lock_all(["a", "b", "c", "d", "e"]);
    for (wait, advice) in [(ms(0), None), (ms(50), Some("`lock_all`"))] {
        let nested = client.lock("a");
        let nested = nested.run(timed_out(&client, "k", wait));
        let said = outer.run(nested).await.expect("free").expect("enters");
        let named = "; this call holds `b`, `c`, `d` and 2 more";
        assert_says(&said, &[named, advice.unwrap_or(named)], &[]);
        assert_eq!(said.contains("`lock_all`"), advice.is_some(), "{said}");
    }
    let spawned = tokio::spawn(async move { timed_out(&client, "k", ms(50)).await });
    assert_own(&spawned.await.expect("no panic"));
}

/// The hint is for calls that may run inside the hold. A hold that began during the wait is not one.
#[tokio::test]
async fn a_call_that_waited_longer_than_the_hold_lasts_gets_no_hint() {
    let client = LockClient::in_memory();
    let first = hold(&client, "k").await;
    let second = acquiring(client.lock("k").lease(LASTING).wait(LONG));
    let third = {
        let client = client.clone();
        tokio::spawn(async move { timed_out(&client, "k", ms(600)).await })
    };
    tokio::time::sleep(ms(300)).await;
    first.release().await.expect("held");
    let _second = second.await.expect("no panic").expect("its turn");
    let said = third.await.expect("no panic");
    assert_says(
        &said,
        &["; it is held by another call of this client, "],
        &["scope"],
    );
}

#[tokio::test]
async fn a_guard_of_another_lock_is_no_reason_to_leave_the_hint_out() {
    let client = LockClient::in_memory();
    let outer = client.lock("a");
    let body = async {
        let _guard = hold(&client, "k").await;
        timed_out(&client, "k", ms(50)).await
    };
    let said = outer.run(body).await.expect("free");
    assert_says(&said, &[HINT, "this call holds `a`"], &[]);
}

#[tokio::test]
async fn a_nested_call_with_another_client_learns_that_it_needs_the_same() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let body = timed_out(&other, "k", ms(400));
    let said = one.lock("k").lease(LASTING).run(body).await.expect("free");
    let hint = "this call runs inside that hold, and enters it only with the same client";
    assert_says(
        &said,
        &["another client of this process, ", hint],
        &["scope"],
    );
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

#[tokio::test]
async fn a_time_out_behind_a_call_that_is_not_polled_says_so() {
    let client = LockClient::in_memory();
    let held = hold(&client, "k").await;
    let lock = client.lock("k").wait(LONG).lease(LASTING);
    let mut call = std::pin::pin!(lock.acquire());
    begin(&mut call).await;
    held.release().await.expect("held");
    let said = timed_out(&client, "k", ms(2_500)).await;
    let parts = ["; an earlier call of this client", "is not being polled"];
    assert_says(&said, &parts, &["is held by", "scope"]);
    let guard = within(LONG, "it is polled again", call).await;
    guard
        .expect("the lease has not ended")
        .release()
        .await
        .expect("held");
}
