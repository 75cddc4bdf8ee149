//! Waits for a lock: in order, without polling, and with an end.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{CommandWatch, Exclusion, Proxy, RedisServer, within};
use tokio::task::JoinHandle;

use crate::common::{
    LASTING, LONG, assert_soon_free, assert_soon_listening, assert_soon_queued, begin, client,
    connect, count, hold, holder, ms, name, polled, resp2, resp2_client, timed,
};

/// Less than the five seconds after which a waiter without a notification retries.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(4);

/// Starts a task that waits for the lock. It returns when it got it.
fn wait_for(client: &LockClient, key: &str) -> JoinHandle<(LockGuard, Instant)> {
    let lock = client.lock(key).lease(LASTING).wait(LONG);
    tokio::spawn(async move {
        let guard = lock.acquire().await.expect("granted in the end");
        (guard, Instant::now())
    })
}

/// Waits until the client sends no more requests.
async fn settled(watch: &mut CommandWatch) {
    let mut quiet_since = Instant::now();
    let mut seen = watch.count().await;
    while quiet_since.elapsed() < ms(300) {
        tokio::time::sleep(ms(20)).await;
        let now = watch.count().await;
        if now != seen {
            (seen, quiet_since) = (now, Instant::now());
        }
    }
    watch.clear().await;
}

#[tokio::test]
async fn waiters_of_one_process_are_served_in_the_order_of_asking() {
    const WAITERS: usize = 20;
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    // Once behind a holder of their own process, and once behind another process.
    for holder in [&client, &other] {
        let held = hold(holder, "k").await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for n in 0..WAITERS {
            let (lock, order) = (client.lock("k").wait(LONG), Arc::clone(&order));
            let mut waiter = Box::pin(async move {
                let guard = lock.acquire().await.expect("its turn");
                order.lock().expect("no panic").push(n);
                guard.release().await.expect("held");
            });
            begin(&mut waiter).await;
            waiting.push(waiter);
        }
        held.release().await.expect("held");
        within(LONG, "all have had their turn", join_all(waiting)).await;
        let order = order.lock().expect("no panic");
        assert!(order.iter().copied().eq(0..WAITERS), "{order:?}");
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_does_not_hold_up_those_behind_it() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let held = hold(&client, "k").await;
    let lock = client.lock("k").wait(LONG);
    let mut quitter = Box::pin(lock.acquire());
    begin(&mut quitter).await;
    let mut patient = Box::pin(lock.acquire());
    begin(&mut patient).await;
    drop(quitter);
    held.release().await.expect("held");
    let (next, waited) = timed(patient).await;
    next.expect("its turn").release().await.expect("held");
    assert!(waited < NOTIFIED_WITHIN, "it waited {waited:?}");
}

#[tokio::test]
async fn waiters_of_the_holders_own_process_send_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let held = hold(&client, "k").await;
    let mut watch = server.watch_commands().await;
    let waiting: Vec<_> = (0..50).map(|_| wait_for(&client, "k")).collect();
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(watch.seen().await, []);
    held.release().await.expect("held");
    for waiter in waiting {
        let (guard, _) = waiter.await.expect("no panic");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_process_that_waits_for_another_sends_nothing_after_its_first_tries() {
    // With RESP2 the server does not report a deleted lock. The first waiter retries every two
    // seconds.
    for (protocol, looks) in [("resp3", 0), ("resp2", 3)] {
        let server = RedisServer::start();
        let url = format!("{}?protocol={protocol}", server.url());
        let (holder, waiter) = (client(&server).await, connect(&url).await);
        let held = hold(&holder, "k").await;
        let mut watch = server.watch_commands().await;
        let waiting: Vec<_> = (0..50).map(|_| wait_for(&waiter, "k")).collect();
        assert_soon_queued(&server, "k", 1).await;
        settled(&mut watch).await;
        tokio::time::sleep(ms(2500)).await;
        let seen = watch.seen().await;
        assert!(seen.len() <= looks, "{protocol}: {seen:?}");
        held.release().await.expect("held");
        for waiter in waiting {
            let (guard, _) = waiter.await.expect("no panic");
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn a_wait_costs_one_request_and_the_release_that_ends_it_grants_the_lock() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let held = hold(&holder, "k").await;
    let mut watch = server.watch_commands().await;
    let waiting = wait_for(&waiter, "k");
    assert_soon_queued(&server, "k", 1).await;
    assert_eq!(watch.count_of("EVALSHA").await, 1);
    held.release().await.expect("held");
    let (guard, _) = waiting.await.expect("no panic");
    // If the machine was paused meanwhile, the waiter confirms its lock.
    let requests = watch.count_of("EVALSHA").await;
    assert!((2..=3).contains(&requests), "{requests}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_release_notifies_a_waiter_in_another_process() {
    let server = RedisServer::start();
    for (one, other) in [
        (client(&server).await, client(&server).await),
        (resp2_client(&server).await, resp2_client(&server).await),
        (client(&server).await, resp2_client(&server).await),
    ] {
        let held = hold(&one, "k").await;
        let waiting = wait_for(&other, "k");
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished());
        let released = Instant::now();
        held.release().await.expect("held");
        let (guard, granted) = waiting.await.expect("no panic");
        let handed_over = granted - released;
        assert!(handed_over < ms(2000), "it took {handed_over:?}");
        guard.release().await.expect("held");
        assert_soon_queued(&server, "k", 0).await;
    }
}

#[tokio::test]
async fn a_guard_that_is_dropped_wakes_the_waiters_as_well() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = wait_for(&other, "k");
    assert_soon_queued(&server, "k", 1).await;
    let dropped = Instant::now();
    drop(held);
    let (_guard, granted) = waiting.await.expect("no panic");
    assert!(
        granted - dropped < NOTIFIED_WITHIN,
        "it took {:?}",
        granted - dropped
    );
}

/// The message is sent while no client is subscribed.
#[tokio::test]
async fn a_wake_up_that_was_lost_with_its_connection_is_made_up_for() {
    let server = RedisServer::start();
    for protocol in ["resp2", "resp3"] {
        let holder = client(&server).await;
        let proxy = Proxy::in_front_of(&server);
        let waiter = connect(&format!("{}?protocol={protocol}", proxy.url())).await;
        let held = hold(&holder, "k").await;
        let waiting = wait_for(&waiter, "k");
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(200)).await;

        proxy.refuse();
        proxy.reset();
        assert_soon_listening(&server, 1).await;
        held.release().await.expect("held");
        assert!(!waiting.is_finished(), "it cannot know yet");
        let healed = Instant::now();
        proxy.pass();
        let (guard, granted) = waiting.await.expect("no panic");
        let delay = granted - healed;
        assert!(delay < ms(3000), "{protocol}: it took {delay:?}");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_subscription_that_the_server_cuts_is_taken_up_again() {
    let server = RedisServer::start();
    for protocol in ["resp2", "resp3"] {
        let holder = client(&server).await;
        let waiter = connect(&format!("{}?protocol={protocol}", server.url())).await;
        let held = hold(&holder, "k").await;
        let waiting = wait_for(&waiter, "k");
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(200)).await;
        // Each client's background connection, or its connection for messages.
        assert_eq!(server.kill_clients("pubsub").await, 2, "{protocol}");
        // The message finds either no subscription, or the new one.
        held.release().await.expect("held");
        let released = Instant::now();
        let (guard, granted) = waiting.await.expect("no panic");
        let delay = granted - released;
        assert!(delay < NOTIFIED_WITHIN, "{protocol}: it took {delay:?}");
        guard.release().await.expect("held");
        assert_soon_queued(&server, "k", 0).await;

        // Closes every connection, and releases only when the subscription is back.
        let held = hold(&holder, "k").await;
        let waiting = wait_for(&waiter, "k");
        assert_soon_queued(&server, "k", 1).await;
        server.kill_clients("normal").await;
        server.kill_clients("pubsub").await;
        assert_soon_queued(&server, "k", 1).await;
        assert!(held.is_valid());
        let released = Instant::now();
        held.release().await.expect("held");
        let (guard, granted) = waiting.await.expect("no panic");
        let delay = granted - released;
        assert!(delay < NOTIFIED_WITHIN, "{protocol}: it took {delay:?}");
        guard.release().await.expect("held");
    }
}

/// The connection stays open, and its messages are lost.
#[tokio::test]
async fn a_wake_up_that_is_swallowed_delays_its_waiter_and_no_more() {
    let server = RedisServer::start();
    let holder = client(&server).await;
    let proxy = Proxy::in_front_of(&server);
    let waiter = connect(&resp2(&proxy.url())).await;
    let held = holder.lock("k").lease(ms(1500));
    let held = held.acquire().await.expect("free");
    let waiting = wait_for(&waiter, "k");
    assert_soon_queued(&server, "k", 1).await;
    tokio::time::sleep(ms(200)).await;
    proxy.black_hole_replies();
    held.release().await.expect("held");
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    proxy.pass();
    let healed = Instant::now();
    let (guard, granted) = waiting.await.expect("no panic");
    let delay = granted - healed;
    assert!(delay < NOTIFIED_WITHIN, "it took {delay:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_holder_that_is_killed_lets_the_waiter_in_when_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let waiter = client(&server).await;
    let mut worker = holder(&server, "k", LEASE).await;
    let waiting = wait_for(&waiter, "k");
    assert_soon_queued(&server, "k", 1).await;
    tokio::time::sleep(LEASE).await;
    assert!(!waiting.is_finished(), "the holder is alive and renews");
    worker.kill();
    let killed = Instant::now();
    let (guard, granted) = waiting.await.expect("no panic");
    let delay = granted - killed;
    assert!(delay < LEASE + ms(1500), "it took {delay:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_wait_ends_in_time_and_names_the_key() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "order:42").await;
    for client in [&one, &other] {
        let lock = client.lock("order:42").wait(ms(300));
        let (outcome, took) = timed(lock.acquire()).await;
        let error = outcome.expect_err("it stays taken");
        assert!((ms(300)..ms(2000)).contains(&took), "{took:?}: {error}");
        assert!(error.to_string().contains("`order:42`"), "{error}");
        let LockError::Timeout {
            key,
            waited,
            remaining,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(key, "order:42");
        assert!(waited >= ms(300) && waited <= took, "{waited:?}");
        assert!(
            remaining.is_some_and(|left| left <= LASTING),
            "{remaining:?}"
        );
    }
    // The same with a body that is not started.
    let lock = other.lock("order:42").wait(ms(100));
    let outcome = lock.run(async { unreachable!("it stays taken") }).await;
    assert!(matches!(outcome, Err(LockError::Timeout { .. })));
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_call_that_does_not_wait_sends_one_request() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let mut watch = server.watch_commands().await;
    for (client, requests) in [(&one, 0), (&other, 1)] {
        let lock = client.lock("k").wait(LONG);
        let (answer, took) = timed(lock.try_acquire()).await;
        assert!(answer.expect("a reply").is_none());
        assert!(took < ms(2000), "{took:?}");
        assert_eq!(watch.count().await, requests);
        watch.clear().await;

        let lock = lock.wait(Duration::ZERO);
        let (answer, took) = timed(lock.acquire()).await;
        assert!(matches!(answer, Err(LockError::Timeout { ref key, .. }) if key == "k"));
        assert!(took < ms(2000), "{took:?}");
        assert_eq!(watch.count().await, requests);
        watch.clear().await;
    }
    held.release().await.expect("held");
    for client in [&one, &other] {
        let lock = client.lock("k").wait(Duration::ZERO);
        let guard = lock.acquire().await.expect("free");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn the_wait_bounds_reconnects_too() {
    const WAIT: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let lock = other.lock("k").wait(WAIT);
    let waiting = tokio::spawn(async move { timed(lock.acquire()).await });
    assert_soon_queued(&server, "k", 1).await;
    server.kill();
    let (outcome, took) = waiting.await.expect("no panic");
    let error = outcome.expect_err("the server is gone");
    assert!((WAIT / 2..ms(3500)).contains(&took), "{took:?}: {error}");
    assert!(error.to_string().contains("`k`"), "{error}");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");

    // The same for a wait that begins after the server is gone, and for a call without a wait.
    let (outcome, took) = timed(other.lock("k").wait(WAIT).acquire()).await;
    let error = outcome.expect_err("the server is gone");
    assert!((WAIT / 2..ms(3500)).contains(&took), "{took:?}: {error}");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let (outcome, took) = timed(other.lock("k").try_acquire()).await;
    let error = outcome.expect_err("the server is gone");
    assert!(took < ms(4000), "{took:?}: {error}");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    drop(held);
}

#[tokio::test]
async fn an_acquire_outlasts_a_restart_of_the_server() {
    let server = RedisServer::start();
    let client = client(&server).await;
    server.kill();
    let waiting = wait_for(&client, "k");
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished());
    server.restart();
    let (guard, _) = waiting.await.expect("no panic");
    assert_eq!(count(&server, &guard).await, Some(1));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_waiter_that_is_cancelled_leaves_nothing_behind() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let owner = held.owner().to_string();
    for polls in 1..8 {
        let lock = other.lock("k").wait(LONG);
        // Each waiter is polled a few times, or until it makes no progress.
        let waiter = tokio::time::timeout(ms(100), polled(polls, lock.acquire())).await;
        assert!(!matches!(waiter, Ok(Some(_))), "it was taken");
    }
    assert_soon_queued(&server, "k", 0).await;
    let waiting = wait_for(&other, "k");
    assert_soon_queued(&server, "k", 1).await;
    waiting.abort();
    assert!(waiting.await.expect_err("aborted").is_cancelled());
    assert_soon_queued(&server, "k", 0).await;

    let keys = server.keys("*").await;
    assert_eq!(keys, [name("k"), format!("{}:fence", name("k"))]);
    let owners = server.hgetall(&name("k")).await;
    assert_eq!(owners.into_keys().collect::<Vec<_>>(), [owner]);

    let waiting = wait_for(&other, "k");
    assert_soon_queued(&server, "k", 1).await;
    let released = Instant::now();
    held.release().await.expect("held");
    let (guard, granted) = waiting.await.expect("no panic");
    assert!(granted - released < NOTIFIED_WITHIN);
    guard.release().await.expect("held");
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_place_in_the_queue_ends_with_the_wait() {
    let server = RedisServer::start();
    for (one, other) in [
        (client(&server).await, client(&server).await),
        (resp2_client(&server).await, resp2_client(&server).await),
    ] {
        let held = hold(&one, "k").await;
        let lock = other.lock("k").wait(ms(400));
        let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
        assert_soon_queued(&server, "k", 1).await;
        waiting.await.expect("no panic").expect_err("it is taken");
        assert_soon_queued(&server, "k", 0).await;

        let waiting = wait_for(&other, "k");
        assert_soon_queued(&server, "k", 1).await;
        held.release().await.expect("held");
        let (guard, _) = waiting.await.expect("no panic");
        assert_soon_queued(&server, "k", 0).await;
        assert!(guard.is_valid());
        guard.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_of_two_clients_enter_one_at_a_time() {
    let server = RedisServer::start();
    let clients = [client(&server).await, client(&server).await];
    let exclusion = Exclusion::new();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..200 {
        let lock = clients[n % 2].lock("k").wait(LONG * 2);
        let (exclusion, tokens) = (exclusion.clone(), Arc::clone(&tokens));
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("its turn");
            let inside = exclusion.enter(format!("task {n}"));
            tokens.lock().expect("no panic").push(guard.fencing_token());
            tokio::task::yield_now().await;
            drop(inside);
            guard.release().await.expect("held");
        }));
    }
    let all = async {
        for task in tasks {
            task.await.expect("no panic");
        }
    };
    within(LONG * 2, "all have been inside", all).await;
    exclusion.assert_held();
    assert_eq!(exclusion.entries(), 200);
    assert!(!server.exists(&name("k")).await);
    let tokens = tokens.lock().expect("no panic");
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}
