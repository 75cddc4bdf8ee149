//! A draining client: existing holds continue, calls that wait are served, and new calls are refused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{Drained, LockClient, LockError, Reentry, current};
use rlock_testkit::{RedisServer, eventually, within};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::common::{
    Acquiring, LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, begin, client,
    hold, its_turn, ms, name, polled, timed,
};

/// Returns a client of each kind of store. The server lives as long as its client.
async fn both() -> [(LockClient, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let on_server = client(&server).await;
    [(LockClient::in_memory(), None), (on_server, Some(server))]
}

type Draining = JoinHandle<Result<Drained, LockError>>;

/// Starts to drain the client. Returns when it refuses new calls.
async fn draining(client: &LockClient, within: Duration) -> Draining {
    let draining = client.clone();
    let draining = tokio::spawn(async move { draining.drain(within).await });
    eventually(LONG, "it drains", async || {
        client.lock("new").try_acquire().await.is_err()
    })
    .await;
    draining
}

async fn outcome(draining: Draining) -> Drained {
    let drained = within(LONG, "it ends", draining).await.expect("no panic");
    drained.expect("in good order")
}

async fn assert_closed(waiting: Acquiring) {
    let outcome = within(LONG, "it ends", waiting).await.expect("no panic");
    let error = outcome.expect_err("the time is over");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
}

fn assert_draining<T: std::fmt::Debug>(outcome: Result<T, LockError>) {
    let error = outcome.expect_err("it drains");
    assert!(matches!(error, LockError::Draining { .. }), "{error:?}");
    assert!(error.is_closing() && !error.is_outage(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("draining"), "{text}");
}

#[tokio::test]
async fn calls_that_wait_when_the_client_begins_to_drain_are_served() {
    for (client, server) in both().await {
        let guard = hold(&client, "k").await;
        let lock = client.lock("k").wait(LONG).retain(LASTING);
        let mut waiting = [lock.clone(), lock.clone()].map(|lock| {
            let call = async move { lock.run(tokio::time::sleep(ms(20))).await };
            Box::pin(call)
        });
        for call in &mut waiting {
            begin(call).await;
        }
        let several = client.lock_all(["k", "l"]).wait(LONG);
        let mut several = Box::pin(several.run(async {}));
        begin(&mut several).await;
        let not_polled = lock.acquire();

        let draining = draining(&client, LONG).await;
        assert_draining(not_polled.await);
        guard.release().await.expect("held");
        let waiting = join_all(waiting.map(tokio::spawn));
        let (waiting, several) =
            within(LONG, "they end", async { (waiting.await, several.await) }).await;
        for outcome in waiting {
            outcome.expect("no panic").expect("served");
        }
        several.expect("served");
        assert_eq!(outcome(draining).await, Drained::Completed);
        if let Some(server) = server {
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn a_call_whose_request_is_in_flight_when_the_client_begins_to_drain_is_served() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k");
    let mut call = Box::pin(lock.acquire());
    begin(&mut call).await;
    let draining = draining(&client, LONG).await;
    let guard = within(LONG, "it is served", call).await.expect("free");
    assert!(!draining.is_finished(), "it is held");
    guard.release().await.expect("held");
    assert_eq!(outcome(draining).await, Drained::Completed);
}

#[tokio::test]
async fn a_call_that_waits_for_another_client_is_served_or_fails_when_the_time_ends() {
    let server = RedisServer::start();
    for is_released in [true, false] {
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = hold(&other, "k").await;
        let waiting = acquiring(one.lock("k").wait(LONG * 3));
        assert_soon_queued(&server, "k", 1).await;
        let time = if is_released { LONG } else { ms(300) };
        let draining = draining(&one, time).await;
        if is_released {
            guard.release().await.expect("held");
            its_turn(waiting).await.release().await.expect("held");
        } else {
            assert_closed(waiting).await;
            drop(guard);
        }
        // No body of this client was stopped.
        assert_eq!(outcome(draining).await, Drained::Completed);
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn the_earlier_end_of_two_drains_counts_for_both() {
    for (client, _server) in both().await {
        let guard = hold(&client, "k").await;
        let waiting = acquiring(client.lock("k").wait(LONG * 3));
        let [long, short] = [
            draining(&client, LONG * 3).await,
            draining(&client, ms(300)).await,
        ];
        assert_closed(waiting).await;
        assert!(!guard.is_valid());
        drop(guard);
        for draining in [short, long] {
            assert_eq!(outcome(draining).await, Drained::Interrupted { locks: 1 });
        }
    }
}

#[tokio::test]
async fn a_running_body_ends_takes_further_locks_and_nothing_else_does() {
    for (client, server) in both().await {
        let (go, word) = oneshot::channel::<()>();
        let (inside, entered) = oneshot::channel::<()>();
        let (lock, nested) = (client.lock("order:1"), client.lock("order:1"));
        let further = client.lock("stock:7");
        let body = tokio::spawn(async move {
            let body = async move {
                inside.send(()).expect("awaited");
                word.await.expect("sent");
                let nested = nested.run(async { 1 }).await?;
                let further = further.run(async { 2 }).await?;
                Ok::<_, LockError>(nested + further)
            };
            lock.run(body).await
        });
        entered.await.expect("it begins");
        let draining = draining(&client, LONG).await;
        assert_draining(client.lock("other").acquire().await);
        assert_draining(client.lock("other").try_acquire().await);
        assert_draining(client.lock("other").run(async {}).await);
        assert!(!draining.is_finished());

        go.send(()).expect("awaited");
        let sum = within(LONG, "the body ends", body).await.expect("no panic");
        assert_eq!(sum.expect("held to its end").expect("both"), 3);
        assert_eq!(outcome(draining).await, Drained::Completed);
        let closed = client.lock("order:1").acquire().await.expect_err("closed");
        assert!(matches!(closed, LockError::Closed { .. }), "{closed:?}");
        if let Some(server) = server {
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn a_guard_is_waited_for_and_calls_in_its_scope_are_let_in() {
    for (client, _server) in both().await {
        let guard = client
            .lock("a")
            .lease(ms(600))
            .acquire()
            .await
            .expect("free");
        let draining = client.clone();
        let draining = tokio::spawn(async move { draining.drain(LONG).await });
        tokio::time::sleep(ms(1200)).await;
        assert!(!draining.is_finished());
        assert!(guard.is_valid(), "it is renewed");
        assert_draining(client.lock("b").acquire().await);
        let further = guard.scope(async { client.lock("b").acquire().await });
        further
            .await
            .expect("inside of a")
            .release()
            .await
            .expect("held");
        drop(guard);
        let drained = within(LONG, "it ends", draining).await.expect("no panic");
        assert_eq!(drained.expect("in good order"), Drained::Completed);
    }
}

#[tokio::test]
async fn what_does_not_end_in_time_is_stopped() {
    for (client, server) in both().await {
        let ended = Arc::new(AtomicBool::new(false));
        let (lock, flag) = (client.lock("k").lease(LASTING), Arc::clone(&ended));
        let (inside, entered) = oneshot::channel::<()>();
        let body = tokio::spawn(async move {
            let body = async {
                inside.send(()).expect("awaited");
                std::future::pending::<()>().await;
                flag.store(true, Ordering::SeqCst);
            };
            lock.run(body).await
        });
        entered.await.expect("it begins");
        let (drained, took) = timed(client.drain(ms(300))).await;
        assert_eq!(
            drained.expect("released"),
            Drained::Interrupted { locks: 1 }
        );
        assert!(took >= ms(300) && took < LONG, "{took:?}");
        let lost = within(LONG, "it stops", body).await.expect("no panic");
        assert!(matches!(lost, Err(LockError::Lost { .. })), "{lost:?}");
        assert!(!ended.load(Ordering::SeqCst));
        if let Some(server) = server {
            assert_nothing_left(&server).await;
        }
    }
}

/// The loss ends no call and no entry.
#[tokio::test]
async fn the_loss_of_a_lock_whose_guard_was_forgotten_ends_the_drain() {
    for is_revoked in [false, true] {
        let server = RedisServer::start();
        let [client, other] = [client(&server).await, client(&server).await];
        std::mem::forget(hold(&client, "k").await);
        let draining = client.clone();
        let draining = tokio::spawn(async move { draining.drain(LONG * 3).await });
        tokio::time::sleep(ms(300)).await;
        assert!(!draining.is_finished(), "it is held");
        if is_revoked {
            other.force_release("k").await.expect("allowed");
        } else {
            assert!(server.del(&name("k")).await);
        }
        let drained = within(LONG, "it ends", draining).await.expect("no panic");
        assert_eq!(drained.expect("nothing is held"), Drained::Completed);
    }
}

#[tokio::test]
async fn a_client_that_holds_nothing_is_drained_at_once() {
    for (client, _server) in both().await {
        let started = Instant::now();
        drop(client.lock("k").acquire().await.expect("free"));
        let drained = client.drain(LONG).await.expect("in good order");
        assert_eq!(drained, Drained::Completed);
        assert!(started.elapsed() < LONG / 2);
        let again = client
            .drain(Duration::ZERO)
            .await
            .expect("nothing is left to do");
        assert_eq!(again, Drained::Completed);
    }
}

#[tokio::test]
async fn a_drain_that_is_cancelled_leaves_its_client_draining_and_can_be_repeated() {
    for (client, _server) in both().await {
        let guard = client.lock("k").acquire().await.expect("free");
        assert!(polled(2, client.drain(LONG)).await.is_none());
        assert_draining(client.lock("other").acquire().await);
        assert!(guard.is_valid());
        let draining = client.clone();
        let draining = tokio::spawn(async move { draining.drain(LONG).await });
        guard.release().await.expect("held");
        let drained = within(LONG, "it ends", draining).await.expect("no panic");
        assert_eq!(drained.expect("in good order"), Drained::Completed);
    }
}

#[tokio::test]
async fn nested_entries_of_a_process_alone_are_let_in_too() {
    let client = LockClient::builder().reentry(Reentry::Local).in_memory();
    let client = client.expect("a client");
    let (lock, draining) = (client.lock("k"), client.clone());
    let body = lock.run(async {
        let draining = tokio::spawn(async move { draining.drain(LONG).await });
        tokio::task::yield_now().await;
        lock.run(async { 1 }).await.map(|one| (one, draining))
    });
    let (one, draining) = body.await.expect("free").expect("enters");
    assert_eq!(one, 1);
    let drained = within(LONG, "it ends", draining).await.expect("no panic");
    assert_eq!(drained.expect("in good order"), Drained::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_during_a_shutdown_fails_because_the_client_is_closed() {
    for _ in 0..300 {
        let client = LockClient::in_memory();
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let lock = client.lock("k").wait(LONG);
                tokio::spawn(async move {
                    loop {
                        if let Err(error) = lock.acquire().await {
                            return error;
                        }
                    }
                })
            })
            .collect();
        client.shutdown().await.expect("released");
        for asking in asking {
            let error = within(LONG, "it ends", asking).await.expect("no panic");
            assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
        }
    }
}

/// The end of the last hold wakes the drain, on another thread.
#[tokio::test]
async fn a_guard_that_is_dropped_while_the_client_drains_is_released_before_the_drain_ends() {
    let observer = client_of_memory().await;
    for round in 0..20 {
        let client = client_of_memory().await;
        let lock = client.lock("k").lease(LASTING);
        let body = lock.run(async {
            let guard = current().expect("inside").guard().expect("held");
            std::thread::spawn(move || {
                std::thread::sleep(ms(60));
                drop(guard);
            });
            std::future::pending::<()>().await;
        });
        let cancelled = tokio::time::timeout(ms(20), body).await;
        assert!(cancelled.is_err());
        let drained = client.drain(LONG).await.expect("in good order");
        assert_eq!(drained, Drained::Completed);
        let left = observer.inspect("k").await.expect("a reply");
        assert!(left.is_none(), "round {round}: {left:?}");
    }
}

async fn client_of_memory() -> LockClient {
    let client = LockClient::connect("memory:drain-and-drop").await;
    client.expect("it needs no server")
}
