//! Waiters without a release to wake them, and a thousand waiters of one lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{Exclusion, RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_queued, client, connect, hold, holder, ms, name, queue,
    resp2_client, timed,
};

/// The longest sleep of a waiter, and some time for the machine.
const CAP: Duration = Duration::from_secs(5 + 3);

/// A lock without an expiry, set directly or by `PERSIST`. No lease shows when to retry.
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
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(500)).await;
        assert!(!waiting.is_finished());
        assert!(server.del(&name("k")).await);
        let (guard, waited) = within(CAP, "the waiter retries", waiting)
            .await
            .expect("no panic");
        let guard = guard.unwrap_or_else(|error| panic!("after {waited:?}: {error}"));
        guard.release().await.expect("held");
    }
}

/// The limit for the first waiter, which is notified or retries every two seconds. Its timer for
/// lost messages is longer, even on a busy machine.
const SOON: Duration = Duration::from_millis(3500);

/// Returns once one of the clients' waiters has the lock. Five waiters of each client wait.
async fn one_of(clients: &[LockClient], after: impl AsyncFnOnce()) -> (LockGuard, Duration) {
    let (sender, mut granted) = tokio::sync::mpsc::channel::<Result<LockGuard, LockError>>(64);
    for client in clients.iter().cycle().take(clients.len() * 5) {
        let (lock, sender) = (client.lock("k").lease(LASTING).wait(LONG), sender.clone());
        tokio::spawn(async move {
            let _ = sender.send(lock.acquire().await).await;
        });
    }
    after().await;
    let (guard, took) = timed(granted.recv()).await;
    (guard.expect("some wait").expect("its turn"), took)
}

/// Waits until all earlier waiters have released the lock.
async fn take_the_last_turn(client: &LockClient) {
    let last = client.lock("k").wait(LONG).acquire().await;
    let last = last.expect("the earlier waiters are done");
    last.release().await.expect("held");
}

/// The lock is deleted directly, is evicted or expires, so no release follows.
#[tokio::test]
async fn a_lock_that_goes_without_a_release_has_its_next_holder_soon() {
    let cases = [
        ("resp3", LASTING, ms(50)),
        ("resp3", LASTING, ms(1500)),
        // The lock is renewed during the wait.
        ("resp3", ms(6000), ms(2300)),
        ("resp3", ms(9000), ms(3900)),
        ("resp2", LASTING, ms(50)),
        ("resp2", LASTING, ms(2500)),
    ];
    let cases = cases.map(async |(protocol, lease, after)| {
        let server = RedisServer::start();
        let holder = client(&server).await;
        let clients = &match protocol {
            "resp2" => [resp2_client(&server).await, resp2_client(&server).await],
            _ => [client(&server).await, client(&server).await],
        };
        let guard = holder.lock("k").lease(lease).acquire().await;
        let guard = guard.expect("free");
        let goes = async || {
            assert_soon_queued(&server, "k", 2).await;
            tokio::time::sleep(after).await;
            assert!(server.del(&name("k")).await);
        };
        let (next, took) = one_of(clients, goes).await;
        assert!(took < SOON, "{protocol}, {lease:?}, {after:?}: {took:?}");
        drop(guard);
        next.release().await.expect("held");
        take_the_last_turn(&client(&server).await).await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_lock_of_a_paused_holder_has_its_next_holder_when_its_lease_ends() {
    let cases = ["resp3", "resp2"].map(async |protocol| {
        let server = RedisServer::start();
        let clients = match protocol {
            "resp2" => [resp2_client(&server).await, resp2_client(&server).await],
            _ => [client(&server).await, client(&server).await],
        };
        let mut stopped = holder(&server, "k", ms(3000)).await;
        let goes = async || {
            assert_soon_queued(&server, "k", 2).await;
            tokio::time::sleep(ms(1300)).await;
            let holder: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
            stopped.pause();
            // The next holder may have it within a millisecond.
            eventually(LONG, "the lease ends", async || {
                let now: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
                now != holder
            })
            .await;
        };
        let (next, took) = one_of(&clients, goes).await;
        assert!(took < ms(1500), "{protocol}: {took:?}");
        next.release().await.expect("held");
        stopped.kill();
        take_the_last_turn(&clients[0]).await;
    });
    join_all(cases).await;
}

/// Renews a lock a hundred times, as often as a lease of 120 ms is renewed. Returns how long that took, and how many
/// requests `waiters` send.
async fn asked_while_renewed(
    server: &RedisServer,
    waiters: &[LockClient],
    place: bool,
) -> (Duration, u64) {
    // The holder is not a live process, so all scripts are from waiters.
    let _: u64 = server
        .command(&["HSET", &name("k"), "somebody:1", "1"])
        .await;
    let renew = async || {
        let _: bool = server.command(&["PEXPIRE", &name("k"), "12000"]).await;
    };
    renew().await;
    let mut waiting = Vec::new();
    for (n, client) in (1..).zip(waiters) {
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
        if place {
            assert_soon_queued(server, "k", n).await;
        }
    }
    let mut watch = server.watch_commands().await;
    watch.clear().await;
    let started = std::time::Instant::now();
    for _ in 0..100 {
        renew().await;
        tokio::time::sleep(ms(40)).await;
    }
    let took = started.elapsed();
    let asked = watch.count_of("EVALSHA").await;
    let many = waiters.len();
    println!("{asked} requests of {many} waiting processes at 100 renewals in {took:?}");
    for waiter in waiting {
        assert!(!waiter.is_finished(), "it is held");
        waiter.abort();
    }
    (took, asked)
}

/// Only the first waiter retries, whatever other clients do to the lock.
#[tokio::test]
async fn renewals_cost_a_fleet_that_waits_two_requests_a_second() {
    const WAITERS: u64 = 16;
    let server = RedisServer::start();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(client(&server).await);
    }
    let (took, asked) = asked_while_renewed(&server, &waiters, true).await;
    // Each waiter also has its timer for lost messages.
    let timers = WAITERS * (took.as_secs() / 5 + 1);
    assert!(asked <= took.as_secs() * 2 + 3 + timers, "{asked}");
}

#[tokio::test]
async fn renewals_cost_a_waiter_that_gets_no_place_two_requests_a_second() {
    const WAITERS: u64 = 4;
    let server = RedisServer::builder()
        .acl_user("locker", "on >secret ~lock:* &lock:* +@all -zadd")
        .start();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(connect(&server.url_as("locker", "secret")).await);
    }
    let (took, asked) = asked_while_renewed(&server, &waiters, false).await;
    let timers = took.as_secs() / 5 + 1;
    assert!(
        asked <= WAITERS * (took.as_secs() * 2 + 3 + timers),
        "{asked}"
    );
}

/// A waiter stays queued for longer than a queue lasts without renewals.
#[tokio::test]
async fn a_deleted_queue_costs_a_waiter_one_timer() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    assert!(server.del(&queue("k")).await);
    held.release().await.expect("held");
    let guard = within(CAP, "the waiter retries", waiting)
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
    assert_soon_queued(&server, "k", CLIENTS - 1).await;
    let mut watch = server.watch_commands().await;
    for kind in ["normal", "pubsub"] {
        server.kill_clients(kind).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Each client queues all its waiters again at once, and checks its holds.
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
    // One request for each change, and sometimes one more to confirm a late lock.
    assert!(changes <= CLIENTS * EACH * 2, "{changes} requests");
}
