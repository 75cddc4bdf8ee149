//! Grants that no call has picked up yet, calls that are not polled, and calls that follow a release of their own client.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{Deletion, Place, eventually, within};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{LONG, assert_soon_queued, owner};

/// Long enough for messages of a busy server, and for a call to begin a hold that it must not begin.
const A_WHILE: Duration = Duration::from_millis(200);

type Outcome = Result<LockGuard, LockError>;

/// Polls the call once: it sends its request.
async fn poll_once<F: Future>(mut call: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await
}

/// Polls the call until it waits for the lock.
async fn wait<F: Future>(call: Pin<&mut F>) {
    let soon = timeout(A_WHILE, call).await;
    assert!(soon.is_err(), "the lock is taken");
}

/// Returns two clients whose connections are up.
async fn clients(place: &Place) -> (LockClient, LockClient) {
    let clients = (place.client().await, place.client().await);
    for client in [&clients.0, &clients.1] {
        let guard = client.lock("warm-up").wait(LONG).acquire().await;
        guard.expect("free").release().await.expect("held");
    }
    clients
}

/// Acquires the lock for the other client, and checks that the call does not hold it until that client releases it.
async fn assert_follows(mut call: Pin<&mut impl Future<Output = Outcome>>, other: &LockClient) {
    let next = other.lock("k").wait(LONG).acquire().await.expect("free");
    if let Ok(early) = timeout(A_WHILE, call.as_mut()).await {
        panic!("{early:?} beside {next:?}");
    }
    let token = next.fencing_token();
    next.release().await.expect("it is the only holder");
    let last = within(LONG, "the call has its turn", call).await;
    assert!(last.expect("granted").fencing_token() > token);
}

pub(crate) async fn a_lock_that_is_deleted_before_its_hold_begins_is_not_held(place: Place) {
    if place.topology().deletion() != Deletion::NotifiedAtOnce {
        return;
    }
    let (one, other) = clients(&place).await;
    let lock = one.lock("k").wait(LONG);
    // The servers of a quorum may reply while the request is being sent.
    let mut call = loop {
        let mut call = Box::pin(lock.acquire());
        match poll_once(call.as_mut()).await {
            Poll::Pending => break call,
            Poll::Ready(early) => early.expect("free").release().await.expect("held"),
        }
    };
    eventually(LONG, "it is granted", async || {
        owner(&other, "k").await.is_some()
    })
    .await;
    assert!(place.delete("k").await);
    // The report comes before the reply, over the same connection.
    assert_eq!(owner(&one, "k").await, None);
    sleep(A_WHILE).await;
    assert_follows(call.as_mut(), &other).await;
}

pub(crate) async fn a_lock_that_is_taken_before_its_hold_begins_is_not_held(place: Place) {
    let (one, other) = clients(&place).await;
    for with_token in [false, true] {
        let held = other.lock("k").wait(LONG).acquire().await.expect("free");
        let lock = one.lock("k").wait(LONG);
        let mut call = pin!(lock.acquire());
        tokio::select! {
            outcome = call.as_mut() => panic!("the lock is taken: {outcome:?}"),
            () = assert_soon_queued(place.keeps_strict_order(), &other, "k", 1) => {}
        }
        held.release().await.expect("held");
        let info = other.inspect("k").await.expect("a reply");
        let Some(token) = info.and_then(|info| info.token) else {
            // A quorum notifies its waiter, which is not polled and does not ask.
            assert!(!place.keeps_strict_order());
            continue;
        };
        let outcome = if with_token {
            other.release_if("k", token).await
        } else {
            other.force_release("k").await
        };
        if !outcome.expect("a reply") {
            // A quorum keeps a released lock for a moment, without an owner.
            assert!(!place.keeps_strict_order());
            continue;
        }
        assert_follows(call, &other).await;
    }
}

pub(crate) async fn an_attempt_follows_the_releases_of_its_own_client(place: Place) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k");
    for round in 0..10 {
        let guard = lock.try_acquire().await.expect("a reply");
        drop(guard.unwrap_or_else(|| panic!("round {round}: refused by its own guard")));
        let guards = one.lock_all(["j", "k"]).try_acquire().await;
        drop(
            guards
                .expect("a reply")
                .unwrap_or_else(|| panic!("round {round}: all")),
        );
        if place.keeps_strict_order() {
            // Cancels a request in flight. Not on a quorum, which keeps the lock for a moment if the call had waited.
            let cancelled = one.lock("k").wait(LONG);
            let _ = poll_once(pin!(cancelled.acquire())).await;
        }
    }
    let mut attempts = JoinSet::new();
    for _ in 0..8 {
        let lock = lock.clone();
        attempts.spawn(async move {
            for _ in 0..20 {
                // One is refused while another one has the lock or its turn.
                drop(lock.try_acquire().await.expect("no outage"));
            }
        });
    }
    attempts.join_all().await;
    drop(lock.try_acquire().await.expect("a reply").expect("free"));
    let held = other.lock("k").wait(LONG).acquire().await.expect("free");
    assert!(lock.try_acquire().await.expect("a reply").is_none());
    let waiting = one.lock("k").wait(LONG);
    let mut waiting = pin!(waiting.acquire());
    wait(waiting.as_mut()).await;
    assert!(lock.try_acquire().await.expect("a reply").is_none());
    held.release().await.expect("held");
    drop(within(LONG, "its turn", waiting).await.expect("granted"));
}

pub(crate) async fn a_lock_that_is_released_by_its_token_before_its_grant_is_read_is_not_held(
    place: Place,
) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k").wait(LONG);
    let mut calls = (0..100).map(|_| Box::pin(lock.acquire()));
    // Some stores reply while the request is being sent.
    let mut call = loop {
        let Some(mut call) = calls.next() else {
            return;
        };
        match poll_once(call.as_mut()).await {
            Poll::Pending => break call,
            Poll::Ready(early) => early.expect("free").release().await.expect("held"),
        }
    };
    let mut token = None;
    eventually(LONG, "it is granted", async || {
        let info = other.inspect("k").await.expect("a reply");
        token = info.and_then(|info| info.token);
        token.is_some()
    })
    .await;
    let released = other.release_if("k", token.expect("it is held")).await;
    assert!(released.expect("a reply"));
    assert_follows(call.as_mut(), &other).await;
}

/// Returns a call for `k` to which the store has handed the lock, and which nobody polls.
async fn handed_off<F: Future<Output = Outcome>>(
    mut call: Pin<Box<F>>,
    place: &Place,
    other: &LockClient,
) -> Pin<Box<F>> {
    let held = other.lock("k").wait(LONG).acquire().await.expect("free");
    tokio::select! {
        outcome = call.as_mut() => panic!("the lock is taken: {outcome:?}"),
        () = assert_soon_queued(place.keeps_strict_order(), other, "k", 1) => {}
    }
    held.release().await.expect("held");
    call
}

pub(crate) async fn an_attempt_is_not_refused_for_a_call_of_its_client_that_nobody_polls(
    place: Place,
) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k").wait(LONG);
    let call = handed_off(Box::pin(lock.acquire()), &place, &other).await;
    eventually(LONG, "the attempt has the turn", async || {
        let attempt = lock.try_acquire().await;
        attempt.expect("a reply").is_some()
    })
    .await;
    let guard = within(LONG, "it has its turn again", call).await;
    guard.expect("free").release().await.expect("held");
}

pub(crate) async fn a_shutdown_releases_the_lock_of_a_call_that_nobody_polls(place: Place) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k").lease(Duration::from_secs(600)).wait(LONG);
    let call = handed_off(Box::pin(lock.acquire()), &place, &other).await;
    let in_flight = one.lock("j").lease(Duration::from_secs(600));
    let mut in_flight = Box::pin(in_flight.acquire());
    let is_granted = poll_once(in_flight.as_mut()).await;
    one.shutdown().await.expect("nothing is left");
    for key in ["j", "k"] {
        let next = other.lock(key).wait(LONG).acquire().await;
        next.expect("free").release().await.expect("held");
    }
    let closed = call.await.expect_err("the client is closed");
    assert!(matches!(closed, LockError::Closed { .. }), "{closed:?}");
    drop(is_granted);
}
