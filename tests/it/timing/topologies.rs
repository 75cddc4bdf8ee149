//! Bounds on time and load of clusters and quorums.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockClient, LockError, StoreUrl};
use rlock_testkit::{
    PostgresServer, Proxy, RedisCluster, assert_taken, eventually,
    simultaneous::{acquire_all, release_all},
    within,
};

use crate::{
    common::{
        LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, connect, fence, hold,
        its_turn, ms, name, timed,
    },
    topologies::quorum::{
        Servers, give_to_another,
        split::{OWNERS, give},
    },
};

/// A limit for calls that must not depend on a time-out.
const SOON: Duration = Duration::from_millis(1500);

/// The node that exports a slot creates no wait queue, so the release hands nothing off.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_waiter_that_comes_while_the_slot_moves_has_the_lock_soon_after_its_release() {
    let cluster = RedisCluster::start().await;
    let key = cluster.key_at(0, "k").await;
    let slot = cluster.slot_of(&name(&key)).await;
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let guard = hold(&one, &key).await;
    cluster.begin_to_move(slot, 0, 1).await;
    let fence = fence(&key);
    cluster.move_key(&fence, 0, 1).await;
    let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(1000)).await;
    guard.release().await.expect("held");
    let (next, took) = timed(its_turn(waiting)).await;
    // Without a notification, the waiter would ask again only after five seconds.
    assert!(took < ms(2500), "{took:?}");
    next.release().await.expect("held");
}

/// Before a call retries with the same owner, it has to know that its votes are rolled back. It must
/// not wait for that much longer than its own wait.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_wait_ends_in_time_although_a_server_falls_silent_after_its_reply() {
    const WAIT: Duration = Duration::from_secs(3);
    // Not the first server: with its vote, the call would also ask the others, which are slow.
    for silent in 1..3 {
        let three = Servers::some(3);
        let proxies: Vec<Proxy> = three.0.iter().map(Proxy::in_front_of).collect();
        let patient = LockClient::builder().response_timeout(LONG);
        let client = patient
            .connect(StoreUrl::quorum(proxies.iter().map(Proxy::url)))
            .await;
        let client = client.expect("all servers are up");
        let (member, way) = (&three.0[silent], &proxies[silent]);
        for taken in (0..3).filter(|n| *n != silent) {
            give_to_another(&three.0[taken..=taken], "k").await;
        }
        // Slow replies leave time to cut the connection between the vote and the roll-back.
        for proxy in &proxies {
            proxy.delay_replies(ms(1000));
        }
        let lock = client.lock("k").lease(LASTING).wait(WAIT);
        let waiting = tokio::spawn(async move { timed(lock.acquire()).await });
        tokio::time::sleep(ms(500)).await;
        way.black_hole_requests();
        let (outcome, took) = waiting.await.expect("no panic");
        let error = outcome.expect_err("taken");
        assert!(matches!(error, LockError::Taken { .. }), "{error:?}");
        assert!(took >= WAIT && took < WAIT + SOON, "{silent}: {took:?}");
        assert!(member.exists(&name("k")).await, "the roll-back is lost");
        proxies.iter().for_each(Proxy::pass);
        eventually(LONG, "its grant is rolled back", async || {
            !member.exists(&name("k")).await
        })
        .await;
    }
}

/// The slow server refuses the requests after their calls were decided.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_slow_server_keeps_its_connection_when_it_refuses_locks() {
    let three = Servers::some(3);
    let slow = Proxy::in_front_of(&three.0[2]);
    let urls = [three.0[0].url(), three.0[1].url(), slow.url()];
    let client = connect(StoreUrl::quorum(urls)).await;
    let keys: Vec<String> = (0..32).map(|n| format!("k{n}")).collect();
    let taken = acquire_all(&three.client().await, &keys).await;
    eventually(LONG, "the slow server has the locks", async || {
        three.0[2].keys("lock:*}").await.len() == keys.len()
    })
    .await;
    slow.delay_replies(ms(400));
    for _ in 0..3 {
        join_all(keys.iter().map(|key| assert_taken(&client, key))).await;
        tokio::time::sleep(ms(600)).await;
    }
    assert_eq!(slow.requests_of("SUBSCRIBE"), 1, "one connection");
    release_all(taken).await;
    three.assert_nothing_left().await;
}

/// The releases that the dead server misses do not delay releases at the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn many_releases_while_a_server_is_dead_leave_nothing_at_the_others() {
    let five = Servers::five();
    five.0[4].kill();
    let client = five.client().await;
    // More releases than the client follows or queues for a member that does not reply.
    let tasks = (0..48).map(|n| {
        let lock = client.lock(format!("k{n}")).lease(LASTING);
        tokio::spawn(async move {
            for _ in 0..200 {
                lock.run(tokio::task::yield_now()).await.expect("free");
            }
        })
    });
    try_join_all(tasks).await.expect("no panic");
    for server in &five.0[..4] {
        assert_nothing_left(server).await;
    }
}

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn waiters_of_a_quorum_send_no_scripts_while_the_lock_is_held() {
    let five = Servers::five();
    let guard = hold(&five.client().await, "k").await;
    let mut waiting = Vec::new();
    for queued in 1..5 {
        let client = five.client().await;
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
        assert_soon_queued(&five.0[0], "k", queued).await;
    }
    tokio::time::sleep(ms(200)).await;
    let mut watches = Vec::new();
    for server in &five.0 {
        watches.push(server.watch_commands().await);
    }
    tokio::time::sleep(ms(1500)).await;
    for watch in &mut watches {
        assert_eq!(watch.count_of("EVALSHA").await, 0, "no waiter polls");
    }
    guard.release().await.expect("held");
    join_all(waiting.into_iter().map(async |waiting| {
        its_turn(waiting).await.release().await.expect("held");
    }))
    .await;
    for watch in &mut watches {
        // Each release makes all waiters ask. Some of them split the servers, roll back and ask again.
        let scripts = watch.count_of("EVALSHA").await;
        assert!(scripts < 200, "{scripts}");
    }
}

/// The lock is deleted directly on the servers, so no release notifies the waiter. A holder that runs would restore it.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_lock_of_a_quorum_that_goes_without_a_release_has_its_next_holder_soon() {
    let three = Servers::some(3);
    for server in &three.0 {
        give(server, OWNERS[0], 600_000).await;
    }
    let waiter = three.client().await;
    let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(500)).await;
    for server in &three.0 {
        server.del(&name("k")).await;
    }
    let (next, took) = timed(its_turn(waiting)).await;
    assert!(took < ms(3500), "{took:?}");
    next.release().await.expect("held");
}

/// The first client comes back at once after each release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn eight_clients_of_a_quorum_that_wait_for_one_key_all_get_it_soon() {
    const CLIENTS: usize = 8;
    let five = Servers::five();
    let is_over = Arc::new(AtomicBool::new(false));
    let hot = five.client().await.lock("k").wait(LONG * 3);
    let comes_back = {
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            while !is_over.load(Ordering::Acquire) {
                hot.run(tokio::time::sleep(ms(5))).await.expect("its turn");
            }
        })
    };
    let waiting = (0..CLIENTS).map(async |_| {
        let lock = five.client().await.lock("k").wait(LONG);
        for _ in 0..3 {
            let ((), took) = timed(async {
                lock.run(tokio::time::sleep(ms(5))).await.expect("its turn");
            })
            .await;
            assert!(took < ms(8000), "{took:?}");
        }
    });
    join_all(waiting).await;
    is_over.store(true, Ordering::Release);
    within(LONG, "it ends", comes_back).await.expect("no panic");
}

/// The server waits for the row for less than this lease.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_lock_with_a_short_lease_outlives_a_kept_row_of_another_one_of_its_client() {
    let server = PostgresServer::start();
    let client = connect(&server.url()).await;
    let lease = ms(1000);
    let [kept, other] = ["kept", "other"].map(|key| client.lock(key).lease(lease));
    let kept = kept.acquire().await.expect("free");
    let other = other.acquire().await.expect("free");
    let _session = server.keep_row("lock:{kept}").await;
    within(LONG, "the row cannot be renewed", kept.lost()).await;
    tokio::time::sleep(lease * 2).await;
    assert!(other.is_valid());
}
