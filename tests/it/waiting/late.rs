//! Late notifications, replies and requests during a hand-off: one holder at a time, no missed
//! turn, and no leftovers.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, LockGuard};
use rlock_testkit::{Gate, RedisServer, Way, eventually, within};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::common::{
    LASTING, LONG, assert_nothing_left, assert_soon_free, begin, client, connect, connect_with,
    hold, ms, name, timed, wait_queue,
};

/// The index of the background connection, which receives notifications.
const BACKGROUND: usize = 0;
/// The index of the caller's connection, for tasks on the client's runtime.
const CALLER: usize = 1;

/// Less than the five seconds after which a waiter without a notification retries.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(4);

/// Returns a client whose two connections go through a gate, and are both in use.
async fn behind_gate(server: &RedisServer) -> (Gate, LockClient) {
    let gate = Gate::in_front_of(server);
    let client = connect(&gate.url()).await;
    eventually(LONG, "the second connection is set up", async || {
        // The server redirects its invalidations.
        let clients: String = server.command(&["CLIENT", "LIST"]).await;
        let mut words = clients.split_whitespace();
        words.any(|word| word.starts_with("redir=") && !["redir=-1", "redir=0"].contains(&word))
    })
    .await;
    // The client has to read the reply.
    tokio::time::sleep(ms(50)).await;
    (gate, client)
}

/// Requests from this runtime use the background connection, also for the waiters behind them.
fn other_runtime() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all();
    runtime.build().expect("a runtime")
}

fn lasting(client: &LockClient, key: &str) -> Lock {
    client.lock(key).lease(LASTING).wait(LONG)
}

fn wait_for(lock: Lock) -> JoinHandle<LockGuard> {
    tokio::spawn(async move { lock.acquire().await.expect("granted in the end") })
}

/// Acquires two locks at once.
async fn both(client: LockClient, wait: Duration) -> Result<(), LockError> {
    #[rlock_core::distributed_lock(key = ["a", "b"], wait = wait, lease = "30s", client = client)]
    async fn take(client: &LockClient, wait: Duration) -> Result<(), LockError> {
        Ok(())
    }
    take(&client, wait).await
}

/// Waits until this many owners are queued, for less time than a waiter's timer takes.
async fn assert_queued(server: &RedisServer, key: &str, waiting: usize) {
    eventually(NOTIFIED_WITHIN, "the waiters are queued", async || {
        wait_queue(server, key).await.len() == waiting
    })
    .await;
}

/// Checks that the waiter waits while this guard has the lock, and gets it afterwards.
async fn assert_served_after(
    server: &RedisServer,
    holder: LockGuard,
    waiter: JoinHandle<LockGuard>,
) {
    let mut waiter = waiter;
    let early = tokio::time::timeout(ms(400), &mut waiter).await;
    assert!(
        early.is_err(),
        "a second holder: {early:?} beside {holder:?}"
    );
    assert!(holder.is_valid());
    let owners = server.hgetall(&name(holder.key())).await;
    assert!(
        owners.keys().eq([&holder.owner().to_string()]),
        "{owners:?}"
    );
    let token = holder.fencing_token();
    holder.release().await.expect("held");
    let guard = within(LONG, "the waiter has its turn", waiter).await;
    let guard = guard.expect("no panic");
    assert!(guard.is_valid());
    assert!(guard.fencing_token() > token);
}

#[tokio::test]
async fn a_notification_of_an_ended_grant_gives_nothing_to_a_waiter_that_asked_again() {
    let server = RedisServer::start();
    let (gate, late) = behind_gate(&server).await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let held = hold(&holder, "k").await;
    let runtime = other_runtime();
    let lock = lasting(&late, "k");
    let quitter = runtime.spawn(async move { lock.acquire().await });
    assert_queued(&server, "k", 1).await;
    let owner = wait_queue(&server, "k").await.remove(0);
    let lock = lasting(&late, "k");
    let mut first = Box::pin(async move { lock.acquire().await.expect("granted in the end") });
    begin(&mut first).await;
    let first = tokio::spawn(first);
    quitter.abort();
    let second = wait_for(lasting(&other, "k"));
    assert_queued(&server, "k", 2).await;
    // Silent for long enough that the script tells the second waiter to check it.
    tokio::time::sleep(ms(300)).await;
    gate.hold(BACKGROUND, Way::Replies);
    held.release().await.expect("held");
    let second = within(NOTIFIED_WITHIN, "the lock goes on", second).await;
    let second = second.expect("no panic");
    assert!(gate.holds(BACKGROUND, Way::Replies));
    eventually(LONG, "the first waiter retries", async || {
        wait_queue(&server, "k").await.contains(&owner)
    })
    .await;
    // The reply that queues it again uses the other connection.
    tokio::time::sleep(ms(30)).await;
    gate.pass(BACKGROUND, Way::Replies);
    assert_served_after(&server, second, first).await;
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_notification_of_a_released_lock_gives_nothing_to_later_waiters() {
    let server = RedisServer::start();
    let (gate, late) = behind_gate(&server).await;
    let (one, two, other) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    let held = hold(&one, "a").await;
    let _held_b = hold(&two, "b").await;
    let runtime = other_runtime();
    let quitter = runtime.spawn({
        let lock = lasting(&late, "a");
        async move { lock.acquire().await }
    });
    assert_queued(&server, "a", 1).await;
    // Behind it in its process: one call that also needs another lock, and one that does not.
    let mut several = Box::pin(both(late.clone(), LONG));
    begin(&mut several).await;
    let several = tokio::spawn(several);
    let lock = lasting(&late, "a");
    let mut last = Box::pin(async move { lock.acquire().await.expect("granted in the end") });
    begin(&mut last).await;
    let last = tokio::spawn(last);
    let elsewhere = wait_for(lasting(&other, "a"));
    assert_queued(&server, "a", 2).await;
    gate.hold(BACKGROUND, Way::Replies);
    held.release().await.expect("held");
    quitter.abort();
    let elsewhere = within(
        NOTIFIED_WITHIN,
        "a lock that is useless alone is handed off",
        elsewhere,
    )
    .await;
    let elsewhere = elsewhere.expect("no panic");
    assert_queued(&server, "a", 1).await;
    tokio::time::sleep(ms(30)).await;
    assert!(gate.holds(BACKGROUND, Way::Replies));
    gate.pass(BACKGROUND, Way::Replies);
    assert_served_after(&server, elsewhere, last).await;
    several.abort();
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_lock_with_a_short_lease_is_not_given_when_its_lease_is_over() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    for (lease, wait) in [(100, 150), (100, 250), (150, 220), (200, 250)] {
        let (lease, key) = (ms(lease), format!("{lease}-{wait}"));
        let held = hold(&holder, &key).await;
        let lock = waiter.lock(&key).lease(lease).wait(LONG);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await.expect("granted in the end");
            (guard.is_valid(), Instant::now())
        });
        assert_queued(&server, &key, 1).await;
        tokio::time::sleep(ms(wait)).await;
        let released = Instant::now();
        held.release().await.expect("held");
        let waiting = within(LONG, "the waiter has its turn", waiting).await;
        let (valid, at) = waiting.expect("no panic");
        let took = at - released;
        // A pause of the machine may exceed any lease.
        assert!(valid || took > lease / 2, "{key}: lost after {took:?}");
    }
}

#[tokio::test]
async fn a_refusal_to_a_call_that_does_not_wait_delays_no_waiter_behind_it() {
    let server = RedisServer::start();
    let (holder, late) = (client(&server).await, client(&server).await);
    let held = hold(&holder, "k").await;
    let lock = lasting(&late, "k");
    let mut once = Box::pin(lock.try_acquire());
    begin(&mut once).await;
    let patient = lock.clone();
    let mut patient = Box::pin(async move { patient.acquire().await.expect("granted in the end") });
    begin(&mut patient).await;
    assert!(once.await.expect("a reply").is_none());
    let patient = tokio::spawn(patient);
    assert_queued(&server, "k", 1).await;
    held.release().await.expect("held");
    let (guard, waited) = timed(patient).await;
    assert!(guard.expect("no panic").is_valid());
    assert!(waited < NOTIFIED_WITHIN, "it waited {waited:?}");
}

#[tokio::test]
async fn a_call_that_turns_to_another_lock_leaves_the_queue_of_the_first() {
    let server = RedisServer::start();
    let (waiter, holder, other) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    // A waiter behind a lease retries when the lease may have ended: after two seconds at most.
    let lock = holder.lock("b").lease(ms(2000));
    let held_b = lock.acquire().await.expect("free");
    let several = tokio::spawn(both(waiter, LONG));
    assert_queued(&server, "b", 1).await;
    let held_a = hold(&holder, "a").await;
    // It requests both again, and now the other lock is taken.
    assert_queued(&server, "a", 1).await;
    assert_queued(&server, "b", 0).await;
    several.abort();
    assert_queued(&server, "a", 0).await;
    assert_eq!(wait_queue(&server, "b").await, [""; 0]);
    held_b.release().await.expect("held");
    let guard = other.lock("b").try_acquire().await.expect("a reply");
    assert!(guard.is_some(), "no call waits for it");
    held_a.release().await.expect("held");
}

#[tokio::test]
async fn a_place_in_the_queue_is_left_by_a_call_that_turns_to_another_lock() {
    let server = RedisServer::start();
    let (waiter, holder) = (client(&server).await, client(&server).await);
    let held_b = hold(&holder, "b").await;
    let held_a = hold(&holder, "a").await;
    let lock = lasting(&waiter, "b");
    let mut quitter = Box::pin(lock.acquire());
    tokio::select! {
        biased;
        () = assert_queued(&server, "b", 1) => {}
        early = &mut quitter => panic!("it has to wait: {early:?}"),
    }
    let mut several = Box::pin(both(waiter.clone(), ms(1500)));
    begin(&mut several).await;
    drop(quitter);
    let outcome = several.await;
    assert!(
        matches!(outcome, Err(LockError::Timeout { .. })),
        "{outcome:?}"
    );
    assert_queued(&server, "a", 0).await;
    assert_queued(&server, "b", 0).await;
    held_a.release().await.expect("held");
    held_b.release().await.expect("held");
}

/// A script for several requests leaves out the lock that is taken, and its late reply makes the client ask again.
#[tokio::test]
async fn a_request_that_is_repeated_by_itself_is_not_overtaken_by_its_release() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let late = connect_with(ms(2000), &gate.url()).await;
    eventually(LONG, "both are connected", async || gate.connections() == 2).await;
    tokio::time::sleep(ms(200)).await;
    let other = client(&server).await;
    let held = hold(&other, "k").await;
    gate.hold(CALLER, Way::Replies);
    let calls = ["alone", "k", "other"].map(|key| wait_for(lasting(&late, key)));
    eventually(LONG, "the requests are executed", async || {
        server.exists(&name("other")).await
    })
    .await;
    held.release().await.expect("held");
    eventually(LONG, "the silent connection is replaced", async || {
        gate.connections() == 3
    })
    .await;
    tokio::time::sleep(ms(200)).await;
    gate.hold(CALLER, Way::Requests);
    gate.pass(CALLER, Way::Replies);
    tokio::time::sleep(ms(200)).await;
    for call in calls {
        call.abort();
        drop(call.await);
    }
    tokio::time::sleep(ms(200)).await;
    gate.pass(CALLER, Way::Requests);
    // A repetition over the former connection would arrive now.
    tokio::time::sleep(ms(200)).await;
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_request_that_comes_after_its_release_by_another_way_takes_nothing() {
    let server = RedisServer::start();
    let (gate, late) = behind_gate(&server).await;
    let other = client(&server).await;
    gate.hold(CALLER, Way::Requests);
    let lock = lasting(&late, "k");
    let mut quitter = Box::pin(lock.acquire());
    tokio::select! {
        biased;
        () = eventually(LONG, "the request is on its way", async || {
            gate.holds(CALLER, Way::Requests)
        }) => {}
        early = &mut quitter => panic!("the request used another connection: {early:?}"),
    }
    // The next caller has another runtime, so its own requests use the other connection.
    let next = lock.clone();
    let mut next = Box::pin(async move { next.acquire().await });
    begin(&mut next).await;
    drop(quitter);
    let next = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let guard = next.await.expect("granted in the end");
            guard.release().await.expect("held");
        });
    });
    // Long enough for all of it, if nothing waits for the held request.
    tokio::time::sleep(ms(500)).await;
    gate.pass(CALLER, Way::Requests);
    within(LONG, "the next has its turn", next)
        .await
        .expect("no panic");
    // The last request has arrived by now.
    tokio::time::sleep(ms(200)).await;
    assert_soon_free(&server, "k").await;
    let (guard, waited) = timed(lasting(&other, "k").acquire()).await;
    assert!(guard.expect("free").is_valid());
    assert!(waited < NOTIFIED_WITHIN, "it waited {waited:?}");
}

/// Polls the future this long after its wake-ups, like a task on a busy thread.
async fn late_by<F: Future>(delay: Duration, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let mut polled = false;
        let output = poll_fn(|context| {
            if polled {
                return Poll::Ready(None);
            }
            polled = true;
            future.as_mut().poll(context).map(Some)
        });
        if let Some(output) = output.await {
            return output;
        }
        tokio::time::sleep(delay).await;
    }
}

#[tokio::test]
async fn hand_overs_that_come_too_late_to_be_used_count_as_such() {
    const TASKS: usize = 4;
    // The waiters at the time of the grant, twice: the count starts before the wait.
    const MOST: u64 = 2 * TASKS as u64;
    let server = RedisServer::start();
    let (busy, other) = (client(&server).await, client(&server).await);
    let granted = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|_| {
        // Too late to use the grant, and early enough to request the lock again.
        let lock = busy.lock("k").lease(ms(300)).wait(LONG);
        let granted = Arc::clone(&granted);
        tokio::spawn(async move {
            loop {
                if let Ok(guard) = late_by(ms(120), lock.acquire()).await {
                    granted.fetch_add(1, Ordering::Relaxed);
                    let _ = guard.release().await;
                }
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    eventually(LONG, "the process is busy", async || {
        granted.load(Ordering::Relaxed) >= MOST
    })
    .await;
    let before = granted.load(Ordering::Relaxed);
    let lock = other.lock("k").lease(LASTING).wait(ms(8000));
    let (guard, waited) = timed(lock.acquire()).await;
    let before = granted.load(Ordering::Relaxed) - before;
    tasks.iter().for_each(JoinHandle::abort);
    assert!(
        guard.is_ok(),
        "{guard:?} after {waited:?} and {before} others"
    );
    assert!(before <= MOST, "{before} came first, for {waited:?}");
}

/// The reply to a release, which queues the next local waiter, is late. Meanwhile that waiter is
/// granted the lock, and another client queues.
#[tokio::test]
async fn a_client_lets_another_in_that_asked_before_the_reply_to_its_release_came() {
    const WAITERS: usize = 40;
    let server = RedisServer::start();
    let (gate, many) = behind_gate(&server).await;
    let single = client(&server).await;
    let held = hold(&many, "k").await;
    let first = wait_for(lasting(&single, "k"));
    assert_queued(&server, "k", 1).await;
    let entered = Arc::new(AtomicU64::new(0));
    let waiters = (0..WAITERS).map(|_| {
        let (lock, entered) = (lasting(&many, "k"), Arc::clone(&entered));
        tokio::spawn(async move {
            let guard = lock.acquire().await.expect("its turn");
            entered.fetch_add(1, Ordering::SeqCst);
            guard.release().await.expect("held");
        })
    });
    let waiters: Vec<_> = waiters.collect();
    tokio::time::sleep(ms(50)).await;

    gate.hold(CALLER, Way::Replies);
    let releasing = tokio::spawn(held.release());
    let first = within(NOTIFIED_WITHIN, "the other client has its turn", first).await;
    first.expect("no panic").release().await.expect("held");
    let second = wait_for(lasting(&single, "k"));
    assert_queued(&server, "k", 1).await;
    tokio::time::sleep(ms(50)).await;
    gate.pass(CALLER, Way::Replies);

    let second = within(LONG, "it has its turn again", second).await;
    let before = entered.load(Ordering::SeqCst);
    assert!(before <= 17, "{before} local waiters were served before");
    second.expect("no panic").release().await.expect("held");
    releasing.await.expect("no panic").expect("held");
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
}
