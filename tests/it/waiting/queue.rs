//! Waits for a lock: their cost, and how they survive lost connections and servers.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError};
use rlock_testkit::{Proxy, RedisServer, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_listening, assert_soon_queued,
    begin, builder, client, connect, enqueued, hold, its_turn, name, queue, resp2, wait_queue,
};

/// Connects a client that keeps its only connection and repeats no request, because it would check its locks on a new one.
async fn patient(server: &RedisServer) -> LockClient {
    let builder = builder().second_connection(false).response_timeout(LONG);
    builder.connect(&server.url()).await.expect("it is up")
}

/// The lock passes from one waiter to the next within the process.
#[tokio::test]
async fn the_waiters_of_a_process_share_its_requests() {
    const WAITERS: u64 = 100;
    let server = RedisServer::start();
    let (client, other) = (patient(&server).await, patient(&server).await);
    for holder in [&client, &other] {
        let held = holder
            .lock("k")
            .lease(LASTING)
            .acquire()
            .await
            .expect("free");
        let mut watch = server.watch_commands().await;
        let mut waiting = Vec::new();
        for _ in 0..WAITERS {
            let lock = client.lock("k").lease(LASTING).wait_forever();
            let mut waiter = Box::pin(async move {
                let guard = lock.acquire().await.expect("its turn");
                guard.release().await.expect("held");
            });
            begin(&mut waiter).await;
            waiting.push(waiter);
        }
        held.release().await.expect("held");
        within(LONG, "all have their turns", join_all(waiting)).await;
        let requests = watch.count_of("EVALSHA").await;
        // A waiter of another process also asks by its timer, every five seconds.
        assert!(requests <= WAITERS / 4, "{requests}");
    }
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_call_that_does_not_wait_sends_one_request() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    let held = one.lock("k").lease(LASTING).acquire().await.expect("free");
    let mut watch = server.watch_commands().await;
    for (client, requests) in [(&one, 0), (&other, 1)] {
        let lock = client.lock("k").wait(LONG);
        assert!(lock.try_acquire().await.expect("a reply").is_none());
        assert_eq!(watch.count().await, requests);
        watch.clear().await;
        let refused = lock.wait(Duration::ZERO).acquire().await;
        assert!(matches!(refused, Err(LockError::Taken { ref key, .. }) if key == "k"));
        assert_eq!(watch.count().await, requests);
        watch.clear().await;
    }
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_waiter_whose_connections_are_cut_listens_again_keeps_its_place_and_misses_nothing() {
    for protocol in ["resp3", "resp2"] {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let holder = client(&server).await;
        let waiter = connect(&format!("{}?protocol={protocol}", proxy.url())).await;
        let held = hold(&holder, "k").await;
        let waiting = enqueued(&server, waiter.lock("k").lease(LASTING).wait(LONG)).await;
        let place = wait_queue(&server, "k").await;
        let left = server.pttl(&queue("k")).await;
        assert!((1..=20_000).contains(&left), "{left}");

        let cut = async || {
            proxy.cut_off();
            assert_soon_listening(&server, 1).await;
        };
        cut().await;
        proxy.pass();
        assert_soon_listening(&server, 2).await;
        assert_eq!(wait_queue(&server, "k").await, place, "{protocol}");
        // The notification is sent while the waiter does not listen.
        cut().await;
        held.release().await.expect("held");
        proxy.pass();
        its_turn(waiting).await.release().await.expect("held");
        assert_nothing_left(&server).await;
    }
}

/// The lock has no time to live that says when to ask again, and no release hands it off.
#[tokio::test]
async fn a_lock_without_an_end_that_goes_without_a_release_has_its_next_holders() {
    let lock = &name("k");
    let cases: [(_, &[_]); 3] = [
        ("resp3", &["DEL", lock]),
        ("resp3", &["FLUSHALL"]),
        ("resp2", &["DEL", lock]),
    ];
    let cases = cases.map(async |(protocol, goes)| {
        let server = RedisServer::start();
        let made: u64 = server.command(&["HSET", lock, "foreign:1", "1"]).await;
        assert_eq!(made, 1);
        let mut waiting = Vec::new();
        for place in 1..=2 {
            let client = connect(&format!("{}?protocol={protocol}", server.url())).await;
            waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
            assert_soon_queued(&server, "k", place).await;
        }
        let _: redis::Value = server.command(goes).await;
        let turns = waiting.into_iter().map(async |waiting| {
            its_turn(waiting).await.release().await.expect("held");
        });
        join_all(turns).await;
        assert_nothing_left(&server).await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_call_of_several_keys_that_turns_to_another_lock_leaves_the_queue_of_the_first() {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    // With RESP2 the first waiter asks every two seconds.
    let waiter = connect(&resp2(&server.url())).await;
    let held_b = hold(&holder, "b").await;
    let both = tokio::spawn(async move { waiter.lock_all(["a", "b"]).wait(LONG).acquire().await });
    assert_soon_queued(&server, "b", 1).await;
    let held_a = hold(&holder, "a").await;
    // It asks for both again, and now the other lock is taken.
    assert_soon_queued(&server, "a", 1).await;
    assert_soon_queued(&server, "b", 0).await;
    both.abort();
    assert!(both.await.expect_err("aborted").is_cancelled());
    assert_soon_queued(&server, "a", 0).await;
    held_b.release().await.expect("held");
    let guard = other.lock("b").try_acquire().await.expect("a reply");
    assert!(guard.is_some(), "no call waits for it");
    held_a.release().await.expect("held");
}
