//! Waiters whom no release wakes, and a thousand whom one might.

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rlock_tests::{Exclusion, RedisServer, within};

use common::{
    LASTING, LONG, acquiring, assert_soon_in_line, client, hold, ms, name, queue, resp2_client,
    timed,
};

/// The longest that a waiter sleeps, and time for the machine.
const CAP: Duration = Duration::from_secs(5 + 3);

/// A lock that has no end, made by hand or by `PERSIST`: nothing says when to ask again.
#[tokio::test]
async fn a_lock_without_an_end_is_asked_for_again_and_again() {
    let server = RedisServer::start();
    for client in [client(&server).await, resp2_client(&server).await] {
        let made: u64 = server
            .command(&["HSET", &name("k"), "somebody:1", "1"])
            .await;
        assert_eq!(made, 1);
        assert_eq!(server.pttl(&name("k")).await, -1);
        let lock = client.lock("k").lease(LASTING).wait(LONG);
        let waiting = tokio::spawn(async move { timed(lock.acquire()).await });
        assert_soon_in_line(&server, "k", 1).await;
        tokio::time::sleep(ms(500)).await;
        assert!(!waiting.is_finished());
        assert!(server.del(&name("k")).await);
        let (guard, waited) = within(CAP, "it asks again", waiting)
            .await
            .expect("no panic");
        let guard = guard.unwrap_or_else(|error| panic!("after {waited:?}: {error}"));
        guard.release().await.expect("held");
    }
}

/// One who waits longer than a queue lasts that nobody renews is still in it.
#[tokio::test]
async fn a_deleted_queue_costs_a_waiter_one_timer() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    assert_soon_in_line(&server, "k", 1).await;
    assert!(server.del(&queue("k")).await);
    held.release().await.expect("held");
    let guard = within(CAP, "it asks again", waiting)
        .await
        .expect("no panic");
    guard.expect("its turn").release().await.expect("held");
}

#[tokio::test]
async fn a_thousand_waiters_whose_connections_are_all_killed_ask_a_few_times_and_all_are_served() {
    const CLIENTS: u64 = 10;
    const EACH: u64 = 100;
    let server = RedisServer::start();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&server).await);
    }
    let held = hold(&clients[0], "k").await;
    let (exclusion, entries) = (Exclusion::new(), Arc::new(AtomicU64::new(0)));
    let mut waiting = Vec::new();
    for client in &clients {
        for _ in 0..EACH {
            let lock = client.lock("k").lease(LASTING).wait(LONG * 6);
            let (exclusion, entries) = (exclusion.clone(), Arc::clone(&entries));
            waiting.push(tokio::spawn(async move {
                let body = async {
                    let _inside = exclusion.enter("a waiter");
                    tokio::task::yield_now().await;
                    entries.fetch_add(1, Ordering::SeqCst);
                };
                lock.run(body).await
            }));
        }
    }
    assert_soon_in_line(&server, "k", CLIENTS - 1).await;
    let mut watch = server.watch_commands().await;
    for kind in ["normal", "pubsub"] {
        server.kill_clients(kind).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Each client asks once more for its whole line, and looks after what it holds.
    let asked = watch.count_of("EVALSHA").await;
    assert!(
        asked <= CLIENTS * 5,
        "{asked} requests of {CLIENTS} clients"
    );
    assert_eq!(entries.load(Ordering::SeqCst), 0, "the lock is held");
    assert!(held.is_valid());

    watch.clear().await;
    held.release().await.expect("held");
    let all = within(LONG * 6, "all are served", join_all(waiting)).await;
    for outcome in all {
        outcome.expect("no panic").expect("served");
    }
    exclusion.assert_held();
    assert_eq!(entries.load(Ordering::SeqCst), CLIENTS * EACH);
    let changes = watch.count_of("EVALSHA").await;
    // One a change, and now and then one to make sure of a lock that came late.
    assert!(changes <= CLIENTS * EACH * 2, "{changes} requests");
}
