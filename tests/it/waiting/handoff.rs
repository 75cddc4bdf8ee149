//! The transfer of a lock from one holder to the next: atomic, in order, at constant cost, and past
//! dead waiters.

use std::{
    future::{Future, poll_fn},
    ops::RangeInclusive,
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, LockGuard, LostCause, distributed_lock};
use rlock_testkit::{
    ClientCommand, CommandWatch, Exclusion, Proxy, RedisServer, Worker, assert_taken, eventually,
    within,
};
use tokio::{task::JoinHandle, time::timeout};

use crate::common::{
    LASTING, LONG, assert_lost, assert_nothing_left, assert_soon_free, assert_soon_listening,
    assert_soon_queued, begin, cause_of, client, connect, count, hold, holder, ms, name, queue,
    resp2, resp2_client,
    speed::{assert_at_most, in_time},
    timed, wait_queue,
};

/// The time for which a granted lock is reserved for a waiter that has not confirmed it.
const GRACE: Duration = Duration::from_secs(1);
const GRACE_MS: i64 = 1000;
/// A waiter that has been silent for this long may be dead.
const UNHEARD: Duration = Duration::from_millis(100);
/// Less than the five seconds after which a waiter without a notification retries.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(4);
/// The timer of a waiter without notifications, the grace period of the one before it, and some
/// noise.
const BY_TIMER: Duration = Duration::from_millis(7500);
/// The number of local hand-overs in a row while another process waits.
const IN_A_ROW: usize = 16;

type Waiting = JoinHandle<(LockGuard, Instant)>;

/// Starts a task that waits for the lock, and returns when it got it.
fn wait_for(client: &LockClient, key: &str) -> Waiting {
    let lock = client.lock(key).lease(LASTING).wait(LONG);
    tokio::spawn(async move {
        let guard = lock.acquire().await.expect("granted in the end");
        (guard, Instant::now())
    })
}

/// Starts a task that is queued on the server at this place.
async fn enqueue(server: &RedisServer, client: &LockClient, key: &str, place: u64) -> Waiting {
    let waiting = wait_for(client, key);
    assert_soon_queued(server, key, place).await;
    waiting
}

async fn served(waiting: Waiting) -> (LockGuard, Instant) {
    within(LONG, "it has its turn", waiting)
        .await
        .expect("no panic")
}

/// The data of a lock on the server.
#[derive(Debug)]
struct Seen {
    owners: Vec<String>,
    ttl: i64,
    token: u64,
}

/// Reads the data in one step.
async fn observe(server: &RedisServer, key: &str) -> Seen {
    const READ: &str = "return {redis.call('HKEYS', KEYS[1]), redis.call('PTTL', KEYS[1]), \
        redis.call('GET', KEYS[1] .. ':fence') or '0'}";
    let (owners, ttl, fence): (_, _, u64) = server.command(&["EVAL", READ, "1", &name(key)]).await;
    let token = fence * 128;
    Seen { owners, ttl, token }
}

/// Polls the future whenever it is woken, up to this many times or until it makes no progress.
async fn advance<F: Future + Unpin>(future: &mut F, polls: usize) {
    for _ in 0..polls {
        let mut polled = false;
        let woken = poll_fn(|context| {
            if polled {
                return Poll::Ready(());
            }
            polled = true;
            assert!(
                Pin::new(&mut *future).poll(context).is_pending(),
                "it has to wait"
            );
            Poll::Pending
        });
        if timeout(ms(100), woken).await.is_err() {
            return;
        }
    }
}

/// Every entry, in order, with its task and its token.
type Log = Vec<(usize, u64)>;

/// Enters each lock this many times from its own task, without a pause. Asserts exclusion and
/// growing tokens.
async fn enter_all(locks: Vec<Lock>, times: usize) -> Log {
    let (inside, log) = (Exclusion::new(), Arc::new(Mutex::new(Log::new())));
    let entries = locks.len() * times;
    let tasks = locks.into_iter().enumerate().map(|(n, lock)| {
        let (inside, log) = (inside.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            for _ in 0..times {
                let guard = lock.acquire().await.expect("its turn");
                let entered = inside.enter(format!("task {n}"));
                log.lock()
                    .expect("no panic")
                    .push((n, guard.fencing_token()));
                tokio::task::yield_now().await;
                drop(entered);
                guard.release().await.expect("held");
            }
        })
    });
    let tasks = join_all(tasks.collect::<Vec<_>>());
    for task in within(LONG * 3, "all have been inside", tasks).await {
        task.expect("no panic");
    }
    inside.assert_held();
    let log = std::mem::take(&mut *log.lock().expect("no panic"));
    assert_eq!(log.len(), entries);
    assert!(log.is_sorted_by(|(_, one), (_, next)| one < next));
    log
}

/// Returns the number of scripts for a hundred entries.
async fn percent(watch: &mut CommandWatch, log: &Log) -> u64 {
    watch.count_of("EVALSHA").await * 100 / log.len() as u64
}

#[tokio::test]
async fn a_release_hands_the_lock_off_to_the_next_process_in_the_same_step() {
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        let one = client(&server).await;
        let proxy = Proxy::in_front_of(&server);
        let other = connect(&format!("{}?protocol={protocol}", proxy.url())).await;
        let held = hold(&one, "k").await;
        let before = observe(&server, "k").await;
        let waiting = enqueue(&server, &other, "k", 1).await;
        let next = wait_queue(&server, "k").await;

        // The waiter's notification is late.
        proxy.hold_replies();
        held.release().await.expect("held");
        let given = observe(&server, "k").await;
        assert_eq!(given.owners, next, "{protocol}");
        assert!(given.ttl > 0 && given.ttl <= GRACE_MS, "{given:?}");
        assert!(given.token > before.token, "{before:?} {given:?}");
        assert_eq!(wait_queue(&server, "k").await, Vec::<String>::new());
        for newcomer in [&one, &client(&server).await] {
            assert_taken(newcomer, "k").await;
        }
        tokio::time::sleep(ms(300)).await;
        proxy.pass();

        let (guard, _) = served(waiting).await;
        let taken = observe(&server, "k").await;
        assert_eq!(taken.owners, next);
        assert_eq!(guard.owner().to_string(), next[0]);
        assert_eq!(guard.fencing_token(), given.token, "{taken:?}");
        eventually(ms(900), "the lock is held for its lease", async || {
            observe(&server, "k").await.ttl > GRACE_MS
        })
        .await;
        assert!(guard.is_valid());
        guard.release().await.expect("held");
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_waited_for_only_shortly_is_held_for_its_lease_too() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for _ in 0..20 {
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &other, "k", 1).await;
        held.release().await.expect("held");
        let (guard, _) = served(waiting).await;
        assert!(guard.is_valid());
        eventually(ms(900), "the lock is held for its lease", async || {
            observe(&server, "k").await.ttl > GRACE_MS
        })
        .await;
        eventually(ms(900), "the guard knows", async || {
            guard.valid_for() > GRACE
        })
        .await;
        guard.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_waiter_the_lock_is_never_free() {
    let server = RedisServer::start();
    let mut locks = Vec::new();
    for _ in 0..4 {
        let client = client(&server).await;
        locks.extend((0..4).map(|_| client.lock("k").wait(LONG * 3)));
    }
    let first = hold(&client(&server).await, "k").await;
    let entering = tokio::spawn(enter_all(locks, 60));
    assert_soon_queued(&server, "k", 4).await;
    first.release().await.expect("held");
    // Long before all waiters have been inside.
    let token = observe(&server, "k").await.token;
    let mut tokens = Vec::new();
    let mut connection = server.connection().await;
    while tokens.len() < 100 {
        const READ: &str =
            "return {redis.call('HLEN', KEYS[1]), redis.call('GET', KEYS[1] .. ':fence')}";
        let (holders, fence): (u64, u64) = redis::cmd("EVAL")
            .arg(&[READ, "1", &name("k")])
            .query_async(&mut connection)
            .await
            .expect("a reply");
        assert_eq!(holders, 1, "after {} changes", tokens.len());
        if tokens.last() != Some(&(fence * 128)) {
            tokens.push(fence * 128);
        }
    }
    assert!(tokens[0] >= token && tokens.is_sorted(), "{tokens:?}");
    entering.await.expect("no panic");
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_within_one_process_cost_next_to_nothing() {
    in_time(changes_within_one_process).await;
}

async fn changes_within_one_process() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut watch = server.watch_commands().await;
    let locks = (0..16).map(|_| client.lock("k").wait(LONG * 3)).collect();
    let log = enter_all(locks, 20).await;
    let cost = percent(&mut watch, &log).await;
    assert_at_most(cost, 10, "a change");
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_between_processes_costs_few_commands() {
    in_time(changes_between_processes).await;
}

async fn changes_between_processes() {
    let server = RedisServer::start();
    let mut locks = Vec::new();
    for _ in 0..4 {
        let client = client(&server).await;
        locks.extend((0..4).map(|_| client.lock("k").wait(LONG * 3)));
    }
    let mut watch = server.watch_commands().await;
    let log = enter_all(locks, 40).await;
    let cost = percent(&mut watch, &log).await;
    // One release for each change. It serves up to four calls of the process.
    assert_at_most(cost, 120, "a change");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_thousand_waiters_of_one_process_cost_one_command_each() {
    in_time(a_thousand_waiters_of_one_process).await;
}

async fn a_thousand_waiters_of_one_process() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&other, "k").await;
    let locks = (0..1000).map(|_| one.lock("k").wait(LONG * 3)).collect();
    let entering = tokio::spawn(enter_all(locks, 1));
    assert_soon_queued(&server, "k", 1).await;
    let mut watch = server.watch_commands().await;
    held.release().await.expect("held");
    let log = entering.await.expect("no panic");
    let cost = percent(&mut watch, &log).await;
    assert_at_most(cost, 110, "a waiter");
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_among_a_hundred_processes_costs_what_it_costs_among_ten() {
    in_time(changes_among_ten_and_a_hundred_processes).await;
}

async fn changes_among_ten_and_a_hundred_processes() {
    // A retry, a confirmation of the lock, and a release.
    const COST: u64 = 350;
    let mut among_ten = None;
    for processes in [10, 100] {
        let server = RedisServer::start();
        let one = client(&server).await;
        let clients = join_all((0..processes).map(|_| client(&server))).await;
        let held = hold(&one, "k").await;
        let locks = clients
            .iter()
            .map(|client| client.lock("k").wait(LONG * 3))
            .collect();
        let mut watch = server.watch_commands().await;
        let entering = tokio::spawn(enter_all(locks, 1));
        assert_soon_queued(&server, "k", processes).await;
        held.release().await.expect("held");
        let log = entering.await.expect("no panic");
        let cost = percent(&mut watch, &log).await;
        assert_at_most(cost, COST, processes);
        // On a busy machine some holders keep the lock until its renewal.
        let before = *among_ten.get_or_insert(cost);
        assert_at_most(cost, before + 100, processes);
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn processes_are_served_in_the_order_of_asking() {
    let server = RedisServer::start();
    let clients = [
        client(&server).await,
        resp2_client(&server).await,
        client(&server).await,
    ];
    // Each holder releases the lock and queues again, behind the others.
    let mut held = hold(&clients[0], "k").await;
    let mut waiting = Vec::new();
    for (place, client) in [(1, &clients[1]), (2, &clients[2])] {
        waiting.push(enqueue(&server, client, "k", place).await);
    }
    let mut token = held.fencing_token();
    for round in 0..12 {
        waiting.push(wait_for(&clients[round % 3], "k"));
        tokio::time::sleep(ms(50)).await;
        let line = wait_queue(&server, "k").await;
        held.release().await.expect("held");
        assert_eq!(
            observe(&server, "k").await.owners,
            line[..1],
            "round {round}"
        );
        held = served(waiting.remove(0)).await.0;
        assert_eq!(held.owner().to_string(), line[0], "round {round}");
        assert!(held.fencing_token() > token, "round {round}");
        token = held.fencing_token();
        assert_soon_queued(&server, "k", 2).await;
    }
    held.release().await.expect("held");
    for waiting in waiting {
        served(waiting).await.0.release().await.expect("held");
    }
    assert_nothing_left(&server).await;
}

/// A dead holder's lock expires without a notification. The first client that asks then grants it
/// to the first waiter.
#[tokio::test]
async fn a_newcomer_does_not_overtake_when_a_lease_has_ended() {
    for waits in [false, true] {
        let server = RedisServer::start();
        let (one, newcomer) = (client(&server).await, client(&server).await);
        let proxy = Proxy::in_front_of(&server);
        let patient = crate::common::builder().response_timeout(LONG);
        let patient = patient
            .connect(&proxy.url())
            .await
            .expect("the server is up");
        let brief = one.lock("k").lease(ms(1200)).watchdog(false);
        let held = brief.acquire().await.expect("free");
        let waiting = enqueue(&server, &patient, "k", 1).await;
        let next = wait_queue(&server, "k").await;
        // The waiter does not ask by itself.
        proxy.hold_requests();
        eventually(LONG, "the lease ends", async || {
            !server.exists(&name("k")).await
        })
        .await;
        let behind = if waits {
            let behind = wait_for(&newcomer, "k");
            assert_soon_queued(&server, "k", 1).await;
            Some(behind)
        } else {
            assert_taken(&newcomer, "k").await;
            None
        };
        assert_eq!(observe(&server, "k").await.owners, next);
        proxy.pass();
        let (guard, _) = served(waiting).await;
        assert_eq!(guard.owner().to_string(), next[0]);
        assert!(behind.as_ref().is_none_or(|behind| !behind.is_finished()));
        guard.release().await.expect("held");
        if let Some(behind) = behind {
            served(behind).await.0.release().await.expect("held");
        }
        assert!(held.release().await.is_err());
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_waiter_that_is_gone_leaves_no_place_and_the_next_has_the_lock_at_once() {
    let server = RedisServer::start();
    for way in ["time-out", "cancelled", "shutdown", "last handle dropped"] {
        let (one, other) = (client(&server).await, client(&server).await);
        let goes = client(&server).await;
        let held = hold(&one, "k").await;
        let wait = if way == "time-out" { ms(1500) } else { LONG };
        let lock = goes.lock("k").wait(wait);
        let going = tokio::spawn(async move { lock.acquire().await.map(drop) });
        assert_soon_queued(&server, "k", 1).await;
        let waiting = enqueue(&server, &other, "k", 2).await;
        let line = wait_queue(&server, "k").await;
        let ended = match way {
            "time-out" => going.await.expect("no panic"),
            "shutdown" => {
                goes.shutdown().await.expect("everything is released");
                going.await.expect("no panic")
            }
            _ => {
                if way == "last handle dropped" {
                    drop(goes);
                }
                going.abort();
                assert!(going.await.expect_err("aborted").is_cancelled());
                Ok(())
            }
        };
        match (way, ended) {
            ("time-out", Err(LockError::Timeout { .. }))
            | ("shutdown", Err(LockError::Closed { .. }))
            | ("cancelled" | "last handle dropped", Ok(())) => {}
            (_, ended) => panic!("{way}: {ended:?}"),
        }
        eventually(ms(3000), way, async || {
            wait_queue(&server, "k").await == line[1..]
        })
        .await;
        held.release().await.expect("held");
        assert_eq!(observe(&server, "k").await.owners, line[1..], "{way}");
        served(waiting).await.0.release().await.expect("held");
        assert_nothing_left(&server).await;
    }
}

/// Returns subscriptions of clients that queue for the lock and never act.
async fn silent_waiters(server: &RedisServer, key: &str, count: usize) -> redis::aio::PubSub {
    let redis = redis::Client::open(server.url()).expect("a valid URL");
    let mut subscriber = redis.get_async_pubsub().await.expect("the server is up");
    for number in 1..=count {
        let id = format!("{number:08}-0000-4000-8000-000000000000");
        let done = subscriber.subscribe(format!("lock:client:{id}")).await;
        done.expect("permitted");
        let mut queue = redis::cmd("ZADD");
        queue
            .arg(format!("lock:{{{key}}}:queue"))
            .arg(number.to_string());
        queue.arg(format!("{id}:1"));
        let queued = queue.query_async(&mut server.connection().await).await;
        assert_eq!(queued, Ok(1));
    }
    subscriber
}

#[tokio::test]
async fn a_local_waiter_behind_silent_ones_waits_for_a_grace_period_of_each() {
    let server = RedisServer::start();
    let one = client(&server).await;
    let held = hold(&one, "k").await;
    let waiting = wait_for(&one, "k");
    tokio::time::sleep(ms(100)).await;
    let _silent = silent_waiters(&server, "k", 2).await;
    let owner = held.owner().to_string();
    let mut wanted = redis::cmd("PUBLISH");
    wanted.arg(format!("lock:client:{}", &owner[..36]));
    wanted.arg(format!("{owner} wanted 0 lock:{{k}}"));
    let received = wanted.query_async(&mut server.connection().await).await;
    assert_eq!(received, Ok(1));
    tokio::time::sleep(ms(100)).await;
    held.release().await.expect("held");
    let released = Instant::now();
    let (guard, granted) = served(waiting).await;
    let took = granted - released;
    assert!(took > GRACE && took < NOTIFIED_WITHIN, "{took:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_waiter_that_is_cancelled_before_or_after_its_grant_passes_the_lock_on() {
    let server = RedisServer::start();
    let (one, goes) = (client(&server).await, client(&server).await);
    let other = client(&server).await;
    for polls in 1..7 {
        for given in [false, true] {
            let held = hold(&one, "k").await;
            let lock = goes.lock("k").lease(LASTING).wait(LONG);
            let mut going = Box::pin(lock.acquire());
            advance(&mut going, polls).await;
            assert_soon_queued(&server, "k", 1).await;
            let waiting = enqueue(&server, &other, "k", 2).await;
            let line = wait_queue(&server, "k").await;
            let released = if given {
                let released = Instant::now();
                held.release().await.expect("held");
                assert_eq!(observe(&server, "k").await.owners, line[..1]);
                drop(going);
                released
            } else {
                drop(going);
                eventually(ms(3000), "its place is gone", async || {
                    wait_queue(&server, "k").await == line[1..]
                })
                .await;
                let released = Instant::now();
                held.release().await.expect("held");
                assert_eq!(observe(&server, "k").await.owners, line[1..]);
                released
            };
            let (guard, granted) = served(waiting).await;
            let took = granted - released;
            assert!(took < ms(2500), "{took:?} after {polls} polls, {given}");
            guard.release().await.expect("held");
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn the_place_of_one_that_is_cancelled_goes_to_the_next_of_its_process_without_a_command() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let leader = enqueue(&server, &other, "k", 1).await;
    let place = wait_queue(&server, "k").await;
    let next = wait_for(&other, "k");
    let behind = enqueue(&server, &client(&server).await, "k", 2).await;
    let mut watch = server.watch_commands().await;
    leader.abort();
    assert!(leader.await.expect_err("aborted").is_cancelled());
    tokio::time::sleep(ms(300)).await;
    assert_eq!(watch.seen().await, []);
    held.release().await.expect("held");
    let (guard, _) = served(next).await;
    assert_eq!(guard.owner().to_string(), place[0]);
    guard.release().await.expect("held");
    served(behind).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_waiting_process_that_is_killed_is_skipped_at_once() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let lease = LASTING.as_millis().to_string();
    let words = ["hold", &server.url(), "k", &lease];
    let mut victims = Vec::new();
    for place in 1..=2 {
        victims.push(crate::common::worker(&words));
        assert_soon_queued(&server, "k", place).await;
    }
    let waiting = enqueue(&server, &other, "k", 3).await;
    let line = wait_queue(&server, "k").await;
    for victim in &mut victims {
        victim.kill();
    }
    assert_soon_listening(&server, 2).await;
    held.release().await.expect("held");
    assert_eq!(observe(&server, "k").await.owners, line[2..]);
    served(waiting).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// A grant during its pause does not count for the paused waiter.
#[tokio::test]
async fn a_paused_waiter_costs_the_grace_period() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let lease = LASTING.as_millis().to_string();
    let mut sleeper = crate::common::worker(&["hold", &server.url(), "k", &lease]);
    assert_soon_queued(&server, "k", 1).await;
    let waiting = enqueue(&server, &other, "k", 2).await;
    let line = wait_queue(&server, "k").await;
    tokio::time::sleep(ms(1200)).await;
    sleeper.pause();
    let released = Instant::now();
    held.release().await.expect("held");
    let given = observe(&server, "k").await;
    assert_eq!(given.owners, line[..1]);
    let (guard, granted) = served(waiting).await;
    let took = granted - released;
    assert!(took + ms(50) >= GRACE && took < ms(2500), "{took:?}");
    assert!(guard.fencing_token() > given.token);

    sleeper.resume();
    assert_soon_queued(&server, "k", 1).await;
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(
        observe(&server, "k").await.owners,
        [guard.owner().to_string()],
        "no other holder relies on it"
    );
    assert!(guard.is_valid());
    let token = guard.fencing_token();
    guard.release().await.expect("held");
    // Only after this release, because the resumed waiter had to queue again.
    let before = sleeper.expect_line(LONG, "holding").await;
    assert_eq!(before, Vec::<String>::new());
    assert!(observe(&server, "k").await.token > token);
    sleeper.kill();
}

/// Starts workers at these places in the queue, and pauses them.
async fn sleepers(server: &RedisServer, places: RangeInclusive<u64>) -> Vec<Worker> {
    let lease = LASTING.as_millis().to_string();
    let mut sleepers = Vec::new();
    for place in places {
        let mut sleeper = crate::common::worker(&["hold", &server.url(), "k", &lease]);
        assert_soon_queued(server, "k", place).await;
        sleeper.pause();
        sleepers.push(sleeper);
    }
    sleepers
}

/// Returns the wait behind three paused waiters, with this many paused waiters behind it.
async fn waits_behind_three_paused_waiters(behind: u64) -> Duration {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let _before = sleepers(&server, 1..=3).await;
    let waiting = enqueue(&server, &other, "k", 4).await;
    let _behind = sleepers(&server, 5..=4 + behind).await;
    // The waiter's timer has just started.
    tokio::time::sleep(UNHEARD).await;
    let released = Instant::now();
    held.release().await.expect("held");
    let (guard, granted) = served(waiting).await;
    guard.release().await.expect("held");
    granted - released
}

/// The script tells the last waiter to check the waiters before it.
#[tokio::test]
async fn each_of_several_paused_waiters_in_a_row_costs_the_grace_period() {
    let took = waits_behind_three_paused_waiters(0).await;
    assert!(took + ms(150) >= GRACE * 3, "{took:?}");
    // By a timer it would take almost two seconds more.
    assert!(took < GRACE * 3 + ms(2000), "{took:?}");
}

/// The waiter whose timer fires first checks each of the others in turn.
#[tokio::test]
async fn if_the_last_waiter_is_paused_too_a_timer_fires_first_once() {
    let took = waits_behind_three_paused_waiters(1).await;
    assert!(took + ms(150) >= GRACE * 3, "{took:?}");
    assert!(took < BY_TIMER + GRACE * 2, "{took:?}");
}

/// The notification is about a grant that has ended meanwhile.
#[tokio::test]
async fn notifications_after_the_grace_period_are_not_accepted() {
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        let (one, other) = (client(&server).await, client(&server).await);
        let proxy = Proxy::in_front_of(&server);
        let late = crate::common::builder().response_timeout(LONG);
        let url = format!("{}?protocol={protocol}", proxy.url());
        let late = late.connect(&url).await.expect("the server is up");
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &late, "k", 1).await;
        proxy.hold_replies();
        held.release().await.expect("held");
        let given = observe(&server, "k").await;
        let lock = other.lock("k").lease(LASTING).wait(LONG);
        let guard = lock.acquire().await.expect("after the grace");
        assert!(guard.fencing_token() > given.token);
        proxy.pass();
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(500)).await;
        assert!(!waiting.is_finished(), "{protocol}");
        assert_eq!(count(&server, &guard).await, Some(1));
        let token = guard.fencing_token();
        guard.release().await.expect("held");
        let (guard, _) = served(waiting).await;
        assert!(guard.fencing_token() > token);
        guard.release().await.expect("held");
        assert_nothing_left(&server).await;
    }
}

/// The notification of the waiter is lost.
#[tokio::test]
async fn a_message_that_is_lost_costs_one_timer() {
    const GIVE: &str = "redis.call('HDEL', KEYS[1], ARGV[1]) \
        redis.call('ZREM', KEYS[1] .. ':queue', ARGV[2]) \
        redis.call('HSET', KEYS[1], ARGV[2], 1) \
        redis.call('PEXPIRE', KEYS[1], 1000) \
        return redis.call('ZCARD', KEYS[1] .. ':queue')";
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        let url = format!("{}?protocol={protocol}", server.url());
        let (one, other) = (connect(&url).await, connect(&url).await);
        let third = connect(&url).await;
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &other, "k", 1).await;
        let behind = enqueue(&server, &third, "k", 2).await;
        let line = wait_queue(&server, "k").await;
        let (lock, owner) = (name("k"), held.owner().to_string());
        let left: u64 = server
            .command(&["EVAL", GIVE, "1", &lock, &owner, &line[0]])
            .await;
        assert_eq!(left, 1);
        let given = Instant::now();
        // The first of them retries. Two are never inside at once.
        let inside = Exclusion::new();
        let enter = async |waiting: Waiting| {
            let (guard, granted) = served(waiting).await;
            let entered = inside.enter(guard.owner().to_string());
            assert!(granted - given < BY_TIMER, "{:?}", granted - given);
            tokio::time::sleep(ms(50)).await;
            drop(entered);
            guard.release().await.expect("held");
        };
        tokio::join!(enter(waiting), enter(behind));
        inside.assert_held();
        let outcome = held.release().await;
        assert_eq!(cause_of(outcome), Some(LostCause::Removed));
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_waiter_without_replies_for_a_while_gets_the_lock_and_is_the_only_holder() {
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        let (one, third) = (client(&server).await, client(&server).await);
        let proxy = Proxy::in_front_of(&server);
        let deaf = connect(&format!("{}?protocol={protocol}", proxy.url())).await;
        let inside = Exclusion::new();
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &deaf, "k", 1).await;
        let behind = enqueue(&server, &third, "k", 2).await;
        let enter = async |waiting: Waiting| {
            let (guard, granted) = served(waiting).await;
            let entered = inside.enter(guard.owner().to_string());
            tokio::time::sleep(ms(50)).await;
            drop(entered);
            guard.release().await.expect("held");
            granted
        };
        // With RESP2 the first waiter retries every two seconds. The sleep ends after such a
        // request.
        tokio::time::sleep(ms(2400)).await;
        proxy.black_hole_replies();
        let released = Instant::now();
        held.release().await.expect("held");
        let behind = enter(behind).await - released;
        assert!(behind < ms(2500), "{protocol}: {behind:?}");
        proxy.pass();
        let deaf = enter(waiting).await - released;
        assert!(deaf < BY_TIMER, "{protocol}: {deaf:?}");
        inside.assert_held();
        assert_nothing_left(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_one_process_let_another_process_in_and_are_let_in() {
    for tasks in [8, 40] {
        let server = RedisServer::start();
        let (many, single) = (client(&server).await, client(&server).await);
        let mut locks: Vec<Lock> = (0..tasks).map(|_| many.lock("k").wait(LONG * 3)).collect();
        locks.push(single.lock("k").wait(LONG * 3));
        let first = hold(&client(&server).await, "k").await;
        let entering = tokio::spawn(enter_all(locks, 4_000 / tasks));
        assert_soon_queued(&server, "k", 2).await;
        first.release().await.expect("held");
        let log = entering.await.expect("no panic");
        let own: Vec<usize> = log
            .iter()
            .enumerate()
            .filter_map(|(at, (who, _))| (*who == tasks).then_some(at))
            .collect();
        let between: Vec<usize> = own.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        // Only entries while the many tasks run: at the end the single one is alone.
        let together = log.iter().rposition(|(who, _)| *who != tasks).unwrap_or(0);
        let between = &between[..own
            .iter()
            .filter(|at| **at < together)
            .count()
            .min(between.len())];
        assert!(between.len() >= 10, "{between:?}");
        // While the single client queues again, the many hand the lock over without a limit.
        let mut sorted = between.to_vec();
        sorted.sort_unstable();
        let usual = sorted[sorted.len() / 2];
        assert!(usual <= 2 * IN_A_ROW + 4, "{tasks}: {between:?}");
        assert!(usual >= tasks.min(IN_A_ROW) / 2, "{tasks}: {between:?}");
        let overtaken = between.iter().filter(|many| **many == 0).count();
        // The next of the many asks when the lock has gone on. On a busy machine the single one may be sooner.
        assert!(overtaken * 2 <= between.len(), "{tasks}: {between:?}");
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn local_callers_that_arrive_after_the_lock_wait_for_the_other_process() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = enqueue(&server, &other, "k", 1).await;
    let late = wait_for(&one, "k");
    tokio::time::sleep(ms(100)).await;
    let line = wait_queue(&server, "k").await;
    held.release().await.expect("held");
    let seen = observe(&server, "k").await;
    assert_eq!(seen.owners, line, "the other was queued before");
    let (guard, _) = served(waiting).await;
    assert!(!late.is_finished());
    guard.release().await.expect("held");
    served(late).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// Counters for the resources that two functions protect.
#[derive(Clone, Default)]
struct Rooms {
    a: Exclusion,
    b: Exclusion,
}

#[distributed_lock(key = ["a", "b"], wait = "60s", client = client)]
async fn a_then_b(client: &LockClient, rooms: &Rooms) -> Result<(), LockError> {
    let _inside = (rooms.a.enter("a then b"), rooms.b.enter("a then b"));
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["b", "a"], wait = "60s", client = client)]
async fn b_then_a(client: &LockClient, rooms: &Rooms) -> Result<(), LockError> {
    let _inside = (rooms.a.enter("b then a"), rooms.b.enter("b then a"));
    tokio::task::yield_now().await;
    Ok(())
}

async fn one_room(client: &LockClient, key: &str, room: &Exclusion) -> Result<(), LockError> {
    let lock = client.lock(key).wait(LONG * 3);
    let body = async {
        let _inside = room.enter(key);
        tokio::task::yield_now().await;
    };
    lock.run(body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_several_keys_in_any_order_is_served_among_others() {
    const TIMES: u64 = 20;
    let server = RedisServer::start();
    let rooms = Rooms::default();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = client(&server).await;
        for what in 0..4 {
            let (client, rooms) = (client.clone(), rooms.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..TIMES {
                    let outcome = match what {
                        0 => a_then_b(&client, &rooms).await,
                        1 => b_then_a(&client, &rooms).await,
                        2 => one_room(&client, "a", &rooms.a).await,
                        _ => one_room(&client, "b", &rooms.b).await,
                    };
                    outcome.expect("its turn");
                }
            }));
        }
    }
    for task in within(LONG * 3, "all have been inside", join_all(tasks)).await {
        task.expect("no panic");
    }
    for room in [&rooms.a, &rooms.b] {
        room.assert_held();
        assert_eq!(room.entries(), 9 * TIMES);
    }
    assert_nothing_left(&server).await;
}

#[distributed_lock(key = ["a", "b", "c"], wait = "60s", client = client)]
async fn a_b_c(client: &LockClient, rooms: &[Exclusion; 3]) -> Result<(), LockError> {
    let _inside: Vec<_> = rooms.iter().map(|room| room.enter("a, b and c")).collect();
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["c", "a"], wait = "60s", client = client)]
async fn c_a(client: &LockClient, rooms: &[Exclusion; 3]) -> Result<(), LockError> {
    let _inside = (rooms[2].enter("c and a"), rooms[0].enter("c and a"));
    tokio::task::yield_now().await;
    Ok(())
}

/// A call for several keys gives back one of its locks. A later call must not use that grant, in
/// any order of notifications.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_released_because_another_key_was_taken_is_free() {
    const TIMES: u64 = 60;
    let server = RedisServer::start();
    let rooms: [Exclusion; 3] = std::array::from_fn(|_| Exclusion::new());
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = client(&server).await;
        for what in 0..8 {
            let (client, rooms) = (client.clone(), rooms.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..TIMES {
                    let outcome = match what {
                        0 => a_b_c(&client, &rooms).await,
                        1 => c_a(&client, &rooms).await,
                        one => {
                            let room = one % 3;
                            one_room(&client, ["a", "b", "c"][room], &rooms[room]).await
                        }
                    };
                    outcome.expect("its turn");
                }
            }));
        }
    }
    for task in within(LONG * 3, "all have been inside", join_all(tasks)).await {
        task.expect("no panic");
    }
    rooms.iter().for_each(Exclusion::assert_held);
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_call_of_several_keys_waits_for_each_and_keeps_none_from_others() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let third = client(&server).await;
    let rooms = Rooms::default();
    let (a, b) = (hold(&one, "a").await, hold(&third, "b").await);
    let both = tokio::spawn({
        let (other, rooms) = (other.clone(), rooms.clone());
        async move { a_then_b(&other, &rooms).await.map(|()| Instant::now()) }
    });
    // It is queued for the first key that is taken.
    assert_soon_queued(&server, "a", 1).await;
    assert_soon_queued(&server, "b", 0).await;
    a.release().await.expect("held");
    assert_soon_queued(&server, "b", 1).await;
    assert!(!both.is_finished());
    eventually(ms(800), "what it does not need yet is free", async || {
        !server.exists(&name("a")).await
    })
    .await;
    one_room(&one, "a", &rooms.a).await.expect("free");
    let released = Instant::now();
    b.release().await.expect("held");
    let entered = within(LONG, "both are free", both).await;
    let took = entered.expect("no panic").expect("granted") - released;
    assert!(took < NOTIFIED_WITHIN, "{took:?}");
    assert_nothing_left(&server).await;
}

/// It is queued for a key behind a holder of its own process, and then finds another key taken.
#[tokio::test]
async fn a_call_of_several_keys_is_queued_for_one_of_them_at_a_time() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let third = client(&server).await;
    let rooms = Rooms::default();
    let a = hold(&third, "a").await;
    let b = hold(&one, "b").await;
    let waiting = enqueue(&server, &other, "b", 1).await;
    let both = tokio::spawn({
        let (one, rooms) = (one.clone(), rooms.clone());
        async move { a_then_b(&one, &rooms).await }
    });
    tokio::time::sleep(ms(200)).await;
    b.release().await.expect("held");
    let (b, _) = served(waiting).await;
    assert_soon_queued(&server, "a", 1).await;
    assert_soon_queued(&server, "b", 0).await;
    b.release().await.expect("held");
    assert_eq!(observe(&server, "b").await.owners, Vec::<String>::new());
    a.release().await.expect("held");
    let both = within(LONG, "both are free", both).await;
    both.expect("no panic").expect("granted");
    assert_nothing_left(&server).await;
}

/// The free lock has a waiter that is not notified yet.
#[tokio::test]
async fn a_refused_call_of_several_keys_hands_off_the_free_ones() {
    #[distributed_lock(key = ["a", "b"], wait = "0s", client = client)]
    async fn both_at_once(client: &LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let third = client(&server).await;
    let a = hold(&one, "a").await;
    let b = hold(&one, "b").await;
    let waiting = enqueue(&server, &other, "a", 1).await;
    assert!(server.del(&name("a")).await);
    let asked = Instant::now();
    let error = both_at_once(&third).await;
    assert!(matches!(error, Err(LockError::Timeout { .. })), "{error:?}");
    let (a_of_other, came) = served(waiting).await;
    assert!(came - asked < NOTIFIED_WITHIN, "{:?}", came - asked);
    a_of_other.release().await.expect("held");
    b.release().await.expect("held");
    assert_lost(&a, LONG, LostCause::Removed).await;
    drop(a);
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_kept_lock_is_granted_in_order_after_its_at_least() {
    const LEAST: Duration = Duration::from_millis(1500);
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("k").lease(LASTING).at_least(LEAST);
    let held = lock.acquire().await.expect("free");
    let since = Instant::now();
    let waiting = enqueue(&server, &other, "k", 1).await;
    let line = wait_queue(&server, "k").await;
    let own = wait_for(&one, "k");
    tokio::time::sleep(ms(100)).await;
    held.release().await.expect("held");
    assert_eq!(observe(&server, "k").await.owners, ["kept"]);
    let (guard, granted) = served(waiting).await;
    let after = granted - since;
    assert!(
        after + ms(50) >= LEAST && after < LEAST + ms(1500),
        "{after:?}"
    );
    assert_eq!(guard.owner().to_string(), line[0]);
    assert!(!own.is_finished());
    guard.release().await.expect("held");
    served(own).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_lock_that_was_handed_over_is_kept_for_its_at_least_as_well() {
    const LEAST: Duration = Duration::from_millis(700);
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    // Once from another process, and once within it.
    for first in [&one, &other] {
        let held = hold(first, "k").await;
        let lock = other.lock("k").lease(LASTING).at_least(LEAST).wait(LONG);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await.expect("its turn");
            let granted = Instant::now();
            guard.release().await.expect("held");
            granted
        });
        tokio::time::sleep(ms(100)).await;
        let next = wait_for(first, "k");
        tokio::time::sleep(ms(100)).await;
        held.release().await.expect("held");
        let granted = within(LONG, "its turn", waiting).await.expect("no panic");
        let (guard, next) = served(next).await;
        let after = next - granted;
        assert!(
            after + ms(50) >= LEAST && after < LEAST + ms(1500),
            "{after:?}"
        );
        guard.release().await.expect("held");
        assert_nothing_left(&server).await;
    }
}

/// Loses the reply to the next script for the lock.
fn lose_the_next_reply(proxy: &Proxy) {
    let lock = name("k");
    proxy.drop_replies_if(1, move |request| {
        request.is("EVALSHA") && request.mentions(&lock)
    });
}

#[tokio::test]
async fn a_hand_off_whose_reply_is_lost_is_done_once() {
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        for (own, elsewhere) in [(1, 0), (0, 1), (2, 1), (1, 2)] {
            let proxy = Proxy::in_front_of(&server);
            let one = connect(&format!("{}?protocol={protocol}", proxy.url())).await;
            let inside = Exclusion::new();
            let held = hold(&one, "k").await;
            let mut tokens = vec![held.fencing_token()];
            let mut waiting = Vec::new();
            for place in 1..=elsewhere {
                waiting.push(enqueue(&server, &client(&server).await, "k", place).await);
            }
            for _ in 0..own {
                waiting.push(wait_for(&one, "k"));
            }
            tokio::time::sleep(ms(100)).await;
            let noted = Mutex::new(&mut tokens);
            let enter = |waiting: Waiting| async {
                let (guard, granted) = served(waiting).await;
                let entered = inside.enter(guard.owner().to_string());
                noted.lock().expect("no panic").push(guard.fencing_token());
                tokio::time::sleep(ms(20)).await;
                drop(entered);
                guard.release().await.expect("held");
                granted
            };
            lose_the_next_reply(&proxy);
            let released = Instant::now();
            let release = async { held.release().await.expect("it was held") };
            let rest = join_all(waiting.into_iter().map(enter));
            let ((), granted) = tokio::join!(release, rest);
            assert_eq!(proxy.replies_lost(), 1, "the fault has struck");
            let last = granted.into_iter().max().expect("some") - released;
            assert!(
                last < NOTIFIED_WITHIN,
                "{protocol} {own} {elsewhere}: {last:?}"
            );
            inside.assert_held();
            assert_eq!(tokens.len() as u64, 1 + own + elsewhere);
            assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn a_release_that_is_repeated_after_the_hand_off_succeeds() {
    let server = RedisServer::start();
    let (other, third) = (client(&server).await, client(&server).await);
    // Once while the next owner holds the lock, once while the one after it does, and once when it
    // is free.
    for hands in 0..3 {
        let proxy = Proxy::in_front_of(&server);
        let one = crate::common::builder().response_timeout(LONG);
        let one = one.connect(&proxy.url()).await.expect("the server is up");
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &other, "k", 1).await;
        let behind = enqueue(&server, &third, "k", 2).await;
        lose_the_next_reply(&proxy);
        proxy.refuse();
        let release = tokio::spawn(held.release());
        let (guard, _) = served(waiting).await;
        let mut after = Some(guard);
        if hands > 0 {
            let guard = after.take().expect("held");
            guard.release().await.expect("held");
            after = Some(served(behind).await.0);
            if hands > 1 {
                let guard = after.take().expect("held");
                guard.release().await.expect("held");
            }
        } else {
            behind.abort();
        }
        assert!(!release.is_finished());
        proxy.pass();
        let outcome = within(LONG, "it is repeated", release).await;
        outcome.expect("no panic").expect("it was done");
        if let Some(guard) = after {
            assert_eq!(
                count(&server, &guard).await,
                Some(1),
                "its lock is unchanged"
            );
            guard.release().await.expect("held");
        }
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn after_a_flush_queued_waiters_get_the_lock_by_their_timers() {
    let server = RedisServer::start();
    for protocol in ["resp3", "resp2"] {
        let url = format!("{}?protocol={protocol}", server.url());
        let (one, other) = (connect(&url).await, connect(&url).await);
        let third = connect(&url).await;
        let brief = one.lock("k").lease(ms(3000));
        let held = brief.acquire().await.expect("free");
        let waiting = enqueue(&server, &other, "k", 1).await;
        let behind = enqueue(&server, &third, "k", 2).await;
        let token = held.fencing_token();
        let () = server.command(&["FLUSHALL"]).await;
        let flushed = Instant::now();
        assert_lost(&held, ms(3000), LostCause::Removed).await;
        let inside = Exclusion::new();
        let enter = async |waiting: Waiting| {
            let (guard, granted) = served(waiting).await;
            let entered = inside.enter(guard.owner().to_string());
            assert!(guard.fencing_token() > token);
            tokio::time::sleep(ms(50)).await;
            drop(entered);
            guard.release().await.expect("held");
            granted - flushed
        };
        let (one, other) = tokio::join!(enter(waiting), enter(behind));
        assert!(one.max(other) < BY_TIMER, "{protocol}: {one:?} {other:?}");
        inside.assert_held();
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_wait_queue_without_owners_expires() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = enqueue(&server, &other, "k", 1).await;
    let left = server.pttl(&queue("k")).await;
    assert!((1..=20_000).contains(&left), "{left}");
    // All waiters would have retried by then.
    tokio::time::sleep(ms(6500)).await;
    let left = server.pttl(&queue("k")).await;
    assert!((15_000..=20_000).contains(&left), "{left}");
    assert_eq!(wait_queue(&server, "k").await.len(), 1);
    held.release().await.expect("held");
    served(waiting).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_waiter_of_a_holder_that_is_killed_is_not_overtaken_by_its_own_process() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut victim = holder(&server, "k", ms(1500)).await;
    let waiting = enqueue(&server, &one, "k", 1).await;
    let mut behind = Vec::new();
    for _ in 0..3 {
        let mut waiter = Box::pin(wait_for(&one, "k"));
        begin(&mut waiter).await;
        behind.push(waiter);
    }
    let elsewhere = enqueue(&server, &other, "k", 2).await;
    victim.kill();
    let (guard, _) = served(waiting).await;
    guard.release().await.expect("held");
    let mut last = None;
    for waiter in behind {
        let (guard, granted) = within(LONG, "its turn", waiter).await.expect("no panic");
        assert!(last.is_none_or(|last| last < granted));
        last = Some(granted);
        guard.release().await.expect("held");
    }
    let (guard, _) = served(elsewhere).await;
    guard.release().await.expect("held");
    assert_soon_free(&server, "k").await;
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn messages_for_other_clients_do_not_wake_a_waiter() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let third = connect(&resp2(&server.url())).await;
    let held = hold(&one, "k").await;
    let first = enqueue(&server, &other, "k", 1).await;
    let second = enqueue(&server, &third, "k", 2).await;
    let line = wait_queue(&server, "k").await;
    held.release().await.expect("held");
    let (guard, _) = served(first).await;
    let mut watch = server.watch_commands().await;
    let (outcome, _) = timed(timeout(ms(500), async {
        while !second.is_finished() {
            tokio::time::sleep(ms(10)).await;
        }
    }))
    .await;
    assert!(outcome.is_err(), "it has to wait");
    let asks = |command: &ClientCommand| command.words.contains(&line[1]);
    assert!(!watch.seen().await.iter().any(asks));
    guard.release().await.expect("held");
    served(second).await.0.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// Replies, messages and connections are lost all the time, and processes are silent for a while.
/// Leases last longer than all of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_lost_requests_and_replies_one_call_holds_at_a_time_and_all_are_served() {
    const TIMES: usize = 30;
    let server = RedisServer::start();
    let proxies: Vec<_> = (0..4).map(|_| Proxy::in_front_of(&server)).collect();
    let (inside, log) = (Exclusion::new(), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for (n, proxy) in proxies.iter().enumerate() {
        let url = if n % 2 == 0 {
            proxy.url()
        } else {
            resp2(&proxy.url())
        };
        let client = crate::common::builder().response_timeout(ms(600));
        let client = client.connect(&url).await.expect("the server is up");
        for task in 0..3 {
            let lock = client.lock("k").lease(LASTING).wait_forever();
            let (inside, log) = (inside.clone(), Arc::clone(&log));
            tasks.push(tokio::spawn(async move {
                let mut times = 0;
                while times < TIMES {
                    let guard = match lock.acquire().await {
                        Ok(guard) => guard,
                        Err(error) => panic!("{error}"),
                    };
                    let entered = inside.enter(format!("task {task} of client {n}"));
                    log.lock().expect("no panic").push(guard.fencing_token());
                    tokio::time::sleep(ms(5)).await;
                    drop(entered);
                    times += 1;
                    match guard.release().await {
                        // A handed-over lock is only reserved for a short while, until its
                        // confirmation.
                        Ok(()) | Err(LockError::Lost { .. } | LockError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }));
        }
    }
    let mut chaos = 0;
    let all = async {
        for task in tasks {
            task.await.expect("no panic");
        }
    };
    let faults = async {
        loop {
            let proxy = &proxies[chaos % proxies.len()];
            chaos += 1;
            match fastrand::u8(..6) {
                0 => proxy.reset(),
                1 => proxy.drop_replies_to("EVALSHA", 1),
                2 => proxy.drop_requests_to("EVALSHA", 1),
                3 => proxy.hold_replies(),
                4 => proxy.black_hole_replies(),
                _ => {
                    server.script_flush().await;
                }
            }
            tokio::time::sleep(ms(fastrand::u64(20..250))).await;
            proxy.pass();
        }
    };
    tokio::select! {
        () = within(LONG * 4, "all have been inside", all) => {}
        () = faults => {}
    }
    for proxy in &proxies {
        proxy.pass();
    }
    assert!(chaos > 5, "{chaos} faults");
    inside.assert_held();
    let log = std::mem::take(&mut *log.lock().expect("no panic"));
    assert_eq!(log.len(), 12 * TIMES);
    assert!(log.is_sorted_by(|one, next| one < next));
    assert_nothing_left(&server).await;
}

/// The lease is 30 seconds, but only a second is left when another process hands the lock over.
#[tokio::test]
async fn a_lock_that_was_handed_over_a_moment_ago_survives_an_outage() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for before in [150, 300] {
        let held = hold(&one, "k").await;
        let waiting = enqueue(&server, &other, "k", 1).await;
        held.release().await.expect("held");
        let (guard, _) = served(waiting).await;
        tokio::time::sleep(ms(before)).await;
        server.pause();
        tokio::time::sleep(ms(1500)).await;
        server.resume();
        tokio::time::sleep(ms(300)).await;
        assert!(guard.is_valid(), "the outage came after {before} ms");
        guard.release().await.expect("held");
    }
}

/// Requests and notifications use different connections. So a notification of a lost grant may
/// follow the reply that queues the owner again. Its token is older than the current holder's.
#[tokio::test]
async fn notifications_older_than_the_present_holder_are_not_accepted() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = enqueue(&server, &other, "k", 1).await;
    let owner = wait_queue(&server, "k").await.remove(0);
    let (id, _) = owner.split_once(':').expect("client and number");
    let fence = held.fencing_token() / 128 - 1;
    let channel = format!("lock:client:{id}");
    let late = format!("{owner} {fence}/0 1000 {}", name("k"));
    let heard: u64 = server.command(&["PUBLISH", &channel, &late]).await;
    assert_eq!(heard, 1);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished(), "another holds the lock");
    assert_eq!(count(&server, &held).await, Some(1));
    held.release().await.expect("held");
    served(waiting).await.0.release().await.expect("held");
}

/// The fence expires two days after the last token, not after the first.
#[tokio::test]
async fn the_last_token_is_kept_during_local_hand_overs() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut held = hold(&client, "k").await;
    let fence = format!("{}:fence", name("k"));
    let _: i64 = server.command(&["PEXPIRE", &fence, "60000"]).await;
    // Some hand-overs extend the expiry.
    for _ in 0..40 {
        // The store grants a lease that is not renewed.
        let lock = client.lock("k").watchdog(false).wait(LONG);
        let mut next = Box::pin(lock.acquire());
        begin(&mut next).await;
        held.release().await.expect("held");
        held = next.await.expect("handed on");
    }
    assert!(server.pttl(&fence).await > 60_000);
}
