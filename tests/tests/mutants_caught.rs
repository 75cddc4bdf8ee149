//! What goes wrong only where several things come together, and would not be noticed elsewhere. Each
//! test catches a mutant in `tests/mutants`.

mod common;

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockClient, LockError, LockGuard};
use rlock_tests::{Proxy, RedisServer, eventually, within};

use common::{LASTING, LONG, acquiring, assert_soon_in_line, begin, client, connect, ms, name};

#[tokio::test]
async fn a_renewed_lease_counts_from_before_its_request_was_sent() {
    const LEASE: Duration = Duration::from_millis(2400);
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let guard = client.lock("k").lease(LEASE).acquire().await;
    let guard = guard.expect("free");
    // The margin for drift is far less than this, and the patience far more.
    proxy.delay_replies(ms(500));
    let started = Instant::now();
    let mut renewals = 0;
    let mut before = Duration::MAX;
    while renewals < 2 || started.elapsed() < LEASE {
        assert!(started.elapsed() < LONG, "it is renewed");
        // The clock goes on between the two looks, which is in favour of the guard.
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

/// Nothing happens to the connection, whose replacement would be a reason to try again.
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

/// Says that it is dropped, and waits for a word before it is gone.
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
async fn a_stopped_body_is_dropped_before_its_lock_is_given_back() {
    let server = RedisServer::start();
    let (said, dropping) = mpsc::channel();
    let (go, word) = mpsc::channel();
    let stopped = Slow {
        dropping: said,
        go: word,
    };
    let url = server.url();
    let call = thread::spawn(move || {
        rlock_tests::block_on(async {
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

/// It is not polled between being given its turn and being dropped.
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

/// Not when the timers of the waiters come to it.
#[tokio::test]
async fn of_many_that_are_given_back_together_those_with_waiters_go_on_at_once() {
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
        assert_soon_in_line(&server, key, 1).await;
    }
    let released = held.into_iter().map(LockGuard::release);
    try_join_all(released).await.expect("all were held");
    let guards = within(ms(3500), "they have their turns", join_all(waiting)).await;
    for guard in guards {
        let guard = guard.expect("no panic").expect("its turn");
        guard.release().await.expect("held");
    }
}
