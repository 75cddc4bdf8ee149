//! A draining client: existing holds continue, calls that wait are served, and new calls are refused.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{DrainOutcome, ErrorKind, LockClient, LockError};
use rlock_testkit::{eventually, within};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::common::{
    Acquiring, LASTING, LONG, acquiring, assert_soon_waits, begin, connect_with, here, hold,
    its_turn, ms, polled, rounds, running,
};

/// Returns a client of an embedded store. Its shutdown waits for as long as a busy machine needs.
async fn patient(store: &str) -> LockClient {
    connect_with(LONG, store).await
}

type Draining = JoinHandle<Result<DrainOutcome, LockError>>;

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

async fn outcome(draining: Draining) -> DrainOutcome {
    let drained = within(LONG, "it ends", draining).await.expect("no panic");
    drained.expect("in good order")
}

async fn assert_closed(waiting: Acquiring) {
    let outcome = within(LONG, "it ends", waiting).await.expect("no panic");
    let error = outcome.expect_err("the time is over");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("after this call had waited"), "{text}");
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
    let client = patient("memory:").await;
    let guard = hold(&client, "k").await;
    let lock = client.lock("k").wait(LONG).retain(LASTING);
    let mut waiting = [lock.clone(), lock.clone()].map(|lock| {
        let call = async move { lock.run(tokio::task::yield_now()).await };
        Box::pin(call)
    });
    for call in &mut waiting {
        begin(call).await;
    }
    let several = client.lock_all(["k", "l"]).wait(LONG);
    let mut several = Box::pin(several.run(async {}));
    begin(&mut several).await;
    let not_polled = lock.acquire();

    let draining = draining(&client, LONG * 3).await;
    assert_draining(not_polled.await);
    guard.release().await.expect("held");
    let waiting = join_all(waiting.map(tokio::spawn));
    let (waiting, several) =
        within(LONG, "they end", async { (waiting.await, several.await) }).await;
    for outcome in waiting {
        outcome.expect("no panic").expect("served");
    }
    several.expect("served");
    assert_eq!(outcome(draining).await, DrainOutcome::Completed);
}

#[tokio::test]
async fn a_call_that_waits_for_another_client_is_served_or_fails_when_the_time_ends() {
    for is_released in [true, false] {
        let store = "memory:drain-and-wait";
        let [one, other] = [patient(store).await, patient(store).await];
        let guard = hold(&other, "k").await;
        let waiting = acquiring(one.lock("k").wait(LONG * 3));
        assert_soon_waits(&other, "k", 1).await;
        let time = if is_released { LONG * 3 } else { ms(300) };
        let draining = draining(&one, time).await;
        if is_released {
            guard.release().await.expect("held");
            its_turn(waiting).await.release().await.expect("held");
        } else {
            assert_closed(waiting).await;
            drop(guard);
        }
        // No body of this client was stopped.
        assert_eq!(outcome(draining).await, DrainOutcome::Completed);
    }
}

#[tokio::test]
async fn a_running_body_ends_takes_further_locks_and_nothing_else_does() {
    let client = patient("memory:").await;
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
    let draining = draining(&client, LONG * 3).await;
    assert_draining(client.lock("other").acquire().await);
    assert_draining(client.lock("other").run(async {}).await);
    assert!(!draining.is_finished(), "the body runs");

    go.send(()).expect("awaited");
    let sum = within(LONG, "the body ends", body).await.expect("no panic");
    assert_eq!(sum.expect("held to its end").expect("both"), 3);
    assert_eq!(outcome(draining).await, DrainOutcome::Completed);
    let closed = client.lock("order:1").acquire().await.expect_err("closed");
    assert!(
        matches!(closed, LockError::Closed { waited: None, .. }),
        "{closed:?}"
    );
}

/// The earlier end of two drains counts for both.
#[tokio::test]
async fn bodies_and_guards_that_outlast_a_drain_are_stopped() {
    let client = patient("memory:").await;
    let (body, ()) = running(&client.lock("k").lease(LASTING), || ()).await;
    let guard = hold(&client, "l").await;
    let waiting = acquiring(client.lock("k").wait(LONG * 3));
    let [long, short] = [
        draining(&client, LONG * 3).await,
        draining(&client, ms(300)).await,
    ];
    assert_closed(waiting).await;
    let lost = within(LONG, "it stops", body).await.expect("no panic");
    let lost = lost.expect_err("it was stopped");
    assert!(matches!(lost, LockError::Lost { .. }), "{lost:?}");
    assert_eq!(lost.kind(), ErrorKind::Closing, "{lost:?}");
    for draining in [short, long] {
        assert_eq!(
            outcome(draining).await,
            DrainOutcome::Interrupted { locks: 2 }
        );
    }
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn a_drain_that_is_cancelled_leaves_its_client_draining_and_can_be_repeated() {
    let client = patient("memory:").await;
    let guard = client.lock("k").acquire().await.expect("free");
    assert!(polled(1, client.drain(LONG)).await.is_none());
    assert_draining(client.lock("other").acquire().await);
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    for _ in 0..2 {
        let drained = within(LONG, "it ends", client.drain(LONG * 3)).await;
        assert_eq!(drained.expect("in good order"), DrainOutcome::Completed);
    }
}

/// The end of the last hold wakes the drain, on another thread.
#[tokio::test]
async fn a_guard_that_is_dropped_while_the_client_drains_is_released_before_the_drain_ends() {
    let store = "memory:drain-and-drop";
    let observer = patient(store).await;
    for round in 0..rounds(20) {
        let client = patient(store).await;
        let lock = client.lock("k").lease(LASTING);
        let kept = lock.run(async { here().guard() });
        let guard = kept.await.expect("free").expect("held");
        let draining = draining(&client, LONG * 3).await;
        let dropping = std::thread::spawn(move || drop(guard));
        assert_eq!(outcome(draining).await, DrainOutcome::Completed);
        let left = observer.inspect("k").await.expect("a reply");
        assert!(left.is_none(), "round {round}: {left:?}");
        dropping.join().expect("no panic");
    }
}
