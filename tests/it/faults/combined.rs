//! Defects that need several conditions at once. Each test catches a mutant in `tests/mutants`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::future::{join_all, try_join_all};
use rlock_core::{InCurrentScope, LockClient, LockError, LockGuard};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_free, assert_soon_queued, begin, client, connect, count,
    hold, its_turn, ms, name,
};

#[tokio::test]
async fn a_renewed_lease_counts_from_before_its_request_was_sent() {
    const LEASE: Duration = Duration::from_millis(2400);
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let guard = client.lock("k").lease(LEASE).acquire().await;
    let guard = guard.expect("free");
    // Far more than the margin for drift, and far less than the response time-out.
    proxy.delay_replies(ms(500));
    let started = Instant::now();
    let mut renewals = 0;
    let mut before = Duration::MAX;
    while renewals < 2 || started.elapsed() < LEASE {
        assert!(started.elapsed() < LONG, "it is renewed");
        // The time between the two reads only makes the guard's value smaller.
        let left = u64::try_from(server.pttl(&name("k")).await).unwrap_or(0);
        let believed = guard.valid_for();
        assert!(
            believed <= ms(left),
            "{believed:?} believed, and {left} ms left at the server"
        );
        renewals += u32::from(believed > before);
        before = believed;
        tokio::time::sleep(ms(20)).await;
    }
    assert!(guard.is_valid());
}

/// The connection survives: its replacement would also trigger a renewal.
#[tokio::test]
async fn a_renewal_that_is_refused_is_tried_again_before_the_lease_ends() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(LEASE).acquire().await;
    let guard = guard.expect("free");
    for may in ["-evalsha", "+evalsha"] {
        let () = server.command(&["ACL", "SETUSER", "default", may]).await;
        eventually(LEASE, "a renewal is refused", async || {
            let refusals: String = server.command(&["INFO", "errorstats"]).await;
            refusals.contains("NOPERM")
        })
        .await;
    }
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_valid(), "renewed by another attempt");
    guard.release().await.expect("held");
}

/// Reports its drop, and then waits for a message.
struct Slow {
    dropping: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.dropping.send(());
        let _ = self.go.recv_timeout(LONG);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_body_is_dropped_before_its_lock_is_released() {
    let server = RedisServer::start();
    let (said, dropping) = mpsc::channel();
    let (go, word) = mpsc::channel();
    let stopped = Slow {
        dropping: said,
        go: word,
    };
    let url = server.url();
    let call = thread::spawn(move || {
        rlock_testkit::block_on(async {
            let client = LockClient::connect(&url).await.expect("the server is up");
            let lock = client.lock("k").lease(LASTING).max_hold(ms(200));
            let body = async move {
                let _stopped = stopped;
                std::future::pending::<()>().await;
            };
            lock.run(body).await
        })
    });
    tokio::task::block_in_place(|| dropping.recv_timeout(LONG)).expect("the body is stopped");
    tokio::time::sleep(ms(200)).await;
    assert!(
        server.exists(&name("k")).await,
        "values of the body are left, and the lock is free"
    );
    go.send(()).expect("it waits for the word");
    let outcome = tokio::task::block_in_place(|| call.join());
    let outcome = outcome.expect("no panic");
    assert!(matches!(outcome, Err(LockError::Lost { .. })));
    assert!(!server.exists(&name("k")).await);
}

/// The waiter gets its turn and is cancelled without a poll in between.
#[tokio::test]
async fn a_turn_given_to_one_that_is_cancelled_goes_to_the_next() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let held = lock.acquire().await.expect("free");
    let mut cancelled = Box::pin(lock.acquire());
    begin(&mut cancelled).await;
    let next = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await.expect("its turn") })
    };
    tokio::time::sleep(ms(100)).await;
    held.release().await.expect("held");
    drop(cancelled);
    let next = within(ms(4000), "the next has its turn", next).await;
    next.expect("no panic").release().await.expect("held");
}

/// The waiters' timers fire later.
#[tokio::test]
async fn of_many_locks_released_together_those_with_waiters_are_handed_off_at_once() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let keys: Vec<_> = (0..16).map(|n| format!("k{n}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        let guard = one.lock(key).lease(LASTING).acquire().await;
        held.push(guard.expect("free"));
    }
    let mut waiting = Vec::new();
    for key in &keys[8..10] {
        waiting.push(acquiring(other.lock(key).lease(LASTING).wait(LONG)));
        assert_soon_queued(&server, key, 1).await;
    }
    let released = held.into_iter().map(LockGuard::release);
    try_join_all(released).await.expect("all were held");
    let guards = within(ms(3500), "they have their turns", join_all(waiting)).await;
    for guard in guards {
        let guard = guard.expect("no panic").expect("its turn");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_lock_that_is_passed_to_a_caller_that_goes_is_released() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let held = lock.acquire().await.expect("free");
    let mut goes = Box::pin(lock.acquire());
    begin(&mut goes).await;
    held.release().await.expect("held");
    assert!(server.exists(&name("k")).await, "it is passed on");
    drop(goes);
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_lock_that_is_passed_to_a_caller_that_is_not_polled_ends_with_its_lease() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("k").lease(ms(1000)).wait(LONG);
    let held = lock.acquire().await.expect("free");
    let stuck = lock.clone();
    let mut stuck = Box::pin(async move { stuck.acquire().await });
    begin(&mut stuck).await;
    held.release().await.expect("held");
    let next = its_turn(acquiring(other.lock("k").lease(LASTING).wait(LONG))).await;
    let stuck = tokio::spawn(stuck);
    tokio::time::sleep(ms(300)).await;
    assert!(!stuck.is_finished(), "another client holds the lock");
    let token = next.fencing_token();
    next.release().await.expect("held");
    assert!(its_turn(stuck).await.fencing_token() > token);
}

#[tokio::test]
async fn a_lock_that_is_lost_on_its_way_to_the_next_caller_is_acquired_again() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("k").lease(LASTING).wait(LONG);
    let held = lock.acquire().await.expect("free");
    let next = lock.clone();
    let mut next = Box::pin(async move { next.acquire().await });
    begin(&mut next).await;
    held.release().await.expect("held");
    assert!(server.del(&name("k")).await);
    let theirs = its_turn(acquiring(other.lock("k").lease(LASTING).wait(LONG))).await;
    // The server reports the loss meanwhile.
    tokio::time::sleep(ms(500)).await;
    let next = tokio::spawn(next);
    tokio::time::sleep(ms(300)).await;
    assert!(!next.is_finished(), "another client holds the lock");
    let token = theirs.fencing_token();
    theirs.release().await.expect("held");
    let next = its_turn(next).await;
    assert!(next.is_valid() && next.fencing_token() > token);
}

/// The hold schedules a renewal that is due long after the retention.
#[tokio::test]
async fn a_retention_that_ends_before_the_next_renewal_ends_in_time() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).retain(ms(500));
    let guard = lock.acquire().await.expect("free");
    guard.release().await.expect("held");
    assert!(server.exists(&name("k")).await, "it is retained");
    let free = assert_soon_free(&server, "k");
    within(ms(5000), "the retention ends", free).await;
}

/// The store grants a lease that is not renewed. It grants both locks or rolls both back.
#[tokio::test]
async fn a_retained_lock_that_a_refused_call_released_is_not_retained_again() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("a").lease(LASTING).retain(LASTING).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    guard.release().await.expect("held");
    let _taken = hold(&other, "b").await;
    let both = one.lock_all(["a", "b"]).lease(LASTING * 2).watchdog(false);
    let refused = both.try_acquire().await.expect("a reply");
    assert!(refused.is_none(), "`b` is taken");
    let again = lock.acquire().await.expect("free");
    assert_eq!(
        count(&server, &again).await,
        Some(1),
        "the server has the lock"
    );
}

/// The background releases the outer entry while the nested one is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_entered_while_the_outer_entry_is_dropped_is_renewed() {
    const LEASE: Duration = Duration::from_secs(2);
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut entered = Vec::new();
    for n in 0..300 {
        let lock = client.lock(format!("k{n}")).lease(LEASE).wait(LONG);
        let outer = lock.acquire().await.expect("free");
        let nested = async move { lock.acquire().await };
        let nested = outer.scope(async { Some(nested.in_current_scope()) }).await;
        let nested = tokio::spawn(nested.expect("inside"));
        let started = Instant::now();
        while started.elapsed() < Duration::from_micros(10 * (n % 40)) {
            std::hint::spin_loop();
        }
        drop(outer);
        entered.push(its_turn(nested).await);
    }
    tokio::time::sleep(LEASE).await;
    let lost = entered.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0);
}

#[tokio::test]
async fn a_client_serves_seventeen_local_waiters_at_most_before_another_client() {
    let server = RedisServer::start();
    let (first, many, single) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    let held = hold(&first, "k").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let enters = |client: &LockClient, who: &'static str| {
        let lock = client.lock("k").lease(LASTING).wait(LONG);
        let order = Arc::clone(&order);
        Box::pin(async move {
            let guard = lock.acquire().await.expect("its turn");
            order.lock().expect("no panic").push(who);
            // The reply with further tokens arrives meanwhile.
            tokio::time::sleep(ms(5)).await;
            guard.release().await.expect("held");
        })
    };
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let mut waits = enters(&many, "many");
        begin(&mut waits).await;
        tasks.push(tokio::spawn(waits));
    }
    assert_soon_queued(&server, "k", 1).await;
    tasks.push(tokio::spawn(enters(&single, "single")));
    assert_soon_queued(&server, "k", 2).await;
    held.release().await.expect("held");
    let tasks = within(LONG, "all have their turns", try_join_all(tasks)).await;
    tasks.expect("no panic");
    let order = order.lock().expect("no panic");
    let at = order.iter().position(|who| *who == "single");
    let at = at.expect("it had its turn");
    // On a slow machine the reply is too late, and the grant's tokens last for 16 holds.
    assert!((16..=17).contains(&at), "{at}");
}

/// Only the guard's own clock shows the end of the lease.
#[tokio::test]
async fn a_hold_whose_watchdog_is_paused_is_not_valid_after_its_lease() {
    let background = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let background = background.expect("a runtime");
    let client = {
        let _entered = background.enter();
        LockClient::builder().tokio_time().in_memory()
    };
    let client = client.expect("a client");
    let lock = client.lock("k").lease(ms(500));
    let guard = lock.acquire().await.expect("free");
    assert!(guard.is_valid());
    tokio::time::sleep(ms(600)).await;
    assert!(!guard.is_valid());
    background.shutdown_background();
}

/// No later caller would serve the waiter as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_caller_that_comes_when_the_lock_becomes_idle_does_not_wait() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING).retain(LASTING).wait(LONG);
    let begun = Instant::now();
    for n in 0..20_000 {
        // A machine without two free cores takes much longer for each round.
        if begun.elapsed() > ms(3000) {
            break;
        }
        let guard = lock.acquire().await.expect("free");
        let (ready, go) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let comes = {
            let (lock, ready, go) = (lock.clone(), Arc::clone(&ready), Arc::clone(&go));
            tokio::spawn(async move {
                ready.store(true, Ordering::SeqCst);
                spin_until(&go);
                lock.acquire().await
            })
        };
        spin_until(&ready);
        go.store(true, Ordering::SeqCst);
        let started = Instant::now();
        while started.elapsed() < Duration::from_nanos(50 * (n % 100)) {
            std::hint::spin_loop();
        }
        guard.release().await.expect("held");
        let guard = within(ms(4000), "it has its turn", its_turn(comes)).await;
        guard.release().await.expect("held");
    }
}

fn spin_until(flag: &AtomicBool) {
    let started = Instant::now();
    while !flag.load(Ordering::SeqCst) {
        std::hint::spin_loop();
        if started.elapsed() > Duration::from_micros(50) {
            thread::yield_now();
        }
    }
}
