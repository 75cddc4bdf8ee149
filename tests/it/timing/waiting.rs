//! The cost of a change of holder, and its duration.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient};
use rlock_testkit::{RedisServer, Witness, Worker, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, client, connect, enqueued,
    hold, its_turn, ms, name, timed, waiting_process,
};

/// Less than the five seconds after which a waiter without a notification asks again.
const SOON: Duration = Duration::from_millis(3500);

async fn clients(server: &RedisServer, count: u64) -> Vec<LockClient> {
    join_all((0..count).map(|_| client(server))).await
}

/// Enters each lock once, from its own task. Asserts exclusion and growing tokens.
async fn enter_all(locks: Vec<Lock>) {
    let inside = Witness::new();
    let tasks = locks.into_iter().map(|lock| {
        let inside = inside.clone();
        tokio::spawn(async move {
            let guard = lock.acquire().await.expect("its turn");
            let entered = inside.hold(&guard);
            tokio::task::yield_now().await;
            drop(entered);
            guard.release().await.expect("held");
        })
    });
    let tasks = join_all(tasks.collect::<Vec<_>>());
    for task in within(LONG * 3, "all have been inside", tasks).await {
        task.expect("no panic");
    }
    inside.assert_held();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn a_change_among_a_hundred_processes_costs_what_it_costs_among_ten() {
    let mut among_ten = None;
    for processes in [10, 100] {
        let server = RedisServer::start();
        let one = client(&server).await;
        let clients = clients(&server, processes).await;
        let held = hold(&one, "k").await;
        let locks = clients.iter().map(|client| client.lock("k").wait(LONG * 3));
        let mut watch = server.watch_commands().await;
        let entering = tokio::spawn(enter_all(locks.collect()));
        assert_soon_queued(&server, "k", processes).await;
        held.release().await.expect("held");
        entering.await.expect("no panic");
        // A request to queue, one to confirm the hand-off, and a release.
        let cost = watch.count_of("EVALSHA").await * 100 / processes;
        assert!(cost <= 350, "{cost} for a hundred entries of {processes}");
        let before = *among_ten.get_or_insert(cost);
        assert!(cost <= before + 100, "{cost}, and {before} among ten");
        assert_nothing_left(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn a_thousand_waiters_whose_connections_are_all_killed_ask_a_few_times_and_all_are_served() {
    const CLIENTS: u64 = 10;
    const EACH: u64 = 100;
    let server = RedisServer::start();
    let clients = clients(&server, CLIENTS).await;
    let held = hold(&clients[0], "k").await;
    let locks = clients.iter().flat_map(|client| {
        let lock = client.lock("k").lease(LASTING).wait(LONG * 6);
        (0..EACH).map(move |_| lock.clone())
    });
    let entering = tokio::spawn(enter_all(locks.collect()));
    assert_soon_queued(&server, "k", CLIENTS - 1).await;
    let mut watch = server.watch_commands().await;
    server.kill_all_clients().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Each client queues all its waiters again at once, and checks its holds.
    let asked = watch.count_of("EVALSHA").await;
    assert!(asked <= CLIENTS * 5, "{asked} requests");
    assert!(held.is_valid());
    watch.clear().await;
    held.release().await.expect("held");
    entering.await.expect("no panic");
    let changes = watch.count_of("EVALSHA").await;
    assert!(changes <= CLIENTS * EACH, "{changes} requests");
}

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_process_that_waits_for_another_sends_nothing_after_its_first_request() {
    // With RESP2 the first waiter asks every two seconds, because the server reports no changes to it.
    for (protocol, most) in [("resp3", 0), ("resp2", 2)] {
        let server = RedisServer::start();
        let url = format!("{}?protocol={protocol}", server.url());
        let (holder, waiter) = (client(&server).await, connect(&url).await);
        let held = hold(&holder, "k").await;
        let lock = || waiter.lock("k").lease(LASTING).wait(LONG);
        let waiting: Vec<_> = (0..50).map(|_| acquiring(lock())).collect();
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(500)).await;
        let mut watch = server.watch_commands().await;
        tokio::time::sleep(ms(3500)).await;
        let seen = watch.seen().await;
        assert!(seen.len() <= most, "{protocol}: {seen:?}");
        held.release().await.expect("held");
        for waiting in waiting {
            its_turn(waiting).await.release().await.expect("held");
        }
    }
}

/// The lock is deleted, so no release notifies the waiter.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_lock_that_goes_without_a_release_has_its_next_holder_soon() {
    let cases = [
        ("resp3", LASTING, ms(50)),
        ("resp3", LASTING, ms(1500)),
        // The lock is renewed during the wait.
        ("resp3", ms(6000), ms(2300)),
        ("resp2", LASTING, ms(2500)),
    ];
    for (protocol, lease, after) in cases {
        let server = RedisServer::start();
        let url = format!("{}?protocol={protocol}", server.url());
        let (holder, waiter) = (client(&server).await, connect(&url).await);
        let held = holder.lock("k").lease(lease).acquire().await.expect("free");
        let waiting = enqueued(&server, waiter.lock("k").lease(LASTING).wait(LONG)).await;
        tokio::time::sleep(after).await;
        assert!(server.del(&name("k")).await);
        let (next, took) = timed(its_turn(waiting)).await;
        assert!(took < SOON, "{protocol}, {lease:?}, {after:?}: {took:?}");
        next.release().await.expect("held");
        drop(held);
    }
}

/// The lock is renewed a hundred times, as often as a lease of 120 ms would need, but only the first waiter asks, at most twice a
/// second.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn renewals_cost_a_fleet_that_waits_two_requests_a_second() {
    const WAITERS: u64 = 16;
    let server = RedisServer::start();
    // The holder is not a live process, so all scripts are from waiters.
    let words = ["HSET", &name("k"), "foreign:1", "1"];
    let _: u64 = server.command(&words).await;
    let mut waiting = Vec::new();
    for (place, client) in (1..).zip(clients(&server, WAITERS).await) {
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
        assert_soon_queued(&server, "k", place).await;
    }
    let mut watch = server.watch_commands().await;
    let ((), took) = timed(async {
        for _ in 0..100 {
            let _: u64 = server.command(&["PEXPIRE", &name("k"), "12000"]).await;
            tokio::time::sleep(ms(40)).await;
        }
    })
    .await;
    let asked = watch.count_of("EVALSHA").await;
    // Each waiter also asks by its timer, in case a message was lost.
    let timers = WAITERS * (took.as_secs() / 5 + 1);
    assert!(asked <= took.as_secs() * 2 + 3 + timers, "{asked}");
    for waiter in waiting {
        assert!(!waiter.is_finished(), "it is held");
        waiter.abort();
    }
}

/// No request but its own lets the reader in, because the other reader stays inside.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_reader_behind_a_writer_that_is_killed_is_let_in_within_a_second() {
    let server = RedisServer::start();
    let (inside, behind) = (client(&server).await, client(&server).await);
    let held = inside.lock("k").shared().lease(LASTING).acquire().await;
    for after in [ms(0), ms(400), ms(800), ms(1_200)] {
        let mut writer = waiting_process(&server, 1).await;
        let waiting = acquiring(behind.lock("k").shared().lease(LASTING).wait(LONG));
        assert_soon_queued(&server, "k", 2).await;
        tokio::time::sleep(after).await;
        writer.kill();
        let (guard, took) = timed(its_turn(waiting)).await;
        assert!(took < ms(1_000), "killed after {after:?}: {took:?}");
        guard.release().await.expect("held");
    }
    held.expect("free").release().await.expect("held");
}

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn each_of_several_paused_waiters_in_a_row_costs_the_grace_period() {
    const GRACE: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let mut paused = Vec::new();
    for place in 1..=3 {
        paused.push(waiting_process(&server, place).await);
    }
    paused.iter_mut().for_each(Worker::pause);
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 4).await;
    // The waiter's timer of five seconds has just started.
    tokio::time::sleep(ms(100)).await;
    held.release().await.expect("held");
    let (guard, took) = timed(its_turn(waiting)).await;
    assert!(took + ms(150) >= GRACE * 3, "{took:?}");
    assert!(took < GRACE * 3 + ms(1500), "{took:?}");
    guard.release().await.expect("held");
}
