//! Grants that no call has picked up yet, calls that are not polled, and calls that follow a release of their own client.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{Deletion, Place, eventually, within};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{LONG, owner};

/// Long enough for messages of a busy server, and for a call to begin a hold that it must not begin.
const A_WHILE: Duration = Duration::from_millis(200);

/// Longer than a quorum keeps a lock after its release if calls waited for it.
const PAUSE: Duration = Duration::from_millis(50);

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
        if poll_once(call.as_mut()).await.is_pending() {
            break call;
        }
    };
    eventually(LONG, "it is granted", async || {
        owner(&other, "k").await.is_some()
    })
    .await;
    assert!(place.delete("k").await);
    // The report is on its way.
    sleep(A_WHILE).await;
    assert_follows(call.as_mut(), &other).await;
}

pub(crate) async fn a_lock_that_is_taken_before_its_hold_begins_is_not_held(place: Place) {
    let (one, other) = clients(&place).await;
    for with_token in [false, true] {
        let held = other.lock("k").wait(LONG).acquire().await.expect("free");
        let lock = one.lock("k").wait(LONG);
        let mut call = pin!(lock.acquire());
        let _ = timeout(A_WHILE / 2, call.as_mut()).await;
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

pub(crate) async fn a_waiter_is_first_at_once_when_the_first_gives_up(place: Place) {
    let (one, other) = clients(&place).await;
    let goes = place.client().await;
    let kept = Duration::from_millis(1_500);
    let held = one.lock("k").at_least(kept).acquire().await.expect("free");
    let lock = goes.lock("k").wait(LONG);
    let mut going = Box::pin(lock.acquire());
    wait(going.as_mut()).await;
    let waiting = other.lock("k").wait(LONG);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    sleep(A_WHILE).await;
    drop(going);
    let deletes = place.topology().deletion() == Deletion::NotifiedAtOnce;
    let since = Instant::now();
    if deletes {
        sleep(A_WHILE).await;
        assert!(place.delete("k").await);
    } else {
        // Its own client does not hand the lock off while it is kept.
        held.release().await.expect("held");
    }
    let next = within(LONG, "the next has its turn", waiting).await;
    drop(next.expect("no panic").expect("granted"));
    let took = since.elapsed();
    // Otherwise it takes nearly five seconds.
    assert!(took < Duration::from_millis(3_500), "{took:?}");
}

pub(crate) async fn an_attempt_follows_the_releases_of_its_own_client(place: Place) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k");
    for round in 0..10 {
        if round > 0 && !place.keeps_strict_order() {
            // A quorum keeps the lock for 5 ms if the cancelled call had queued.
            sleep(PAUSE).await;
        }
        let guard = lock.try_acquire().await.expect("a reply");
        drop(guard.unwrap_or_else(|| panic!("round {round}: refused by its own guard")));
        let guards = one.lock_all(["j", "k"]).try_acquire().await;
        drop(
            guards
                .expect("a reply")
                .unwrap_or_else(|| panic!("round {round}: all")),
        );
        // A request in flight is cancelled.
        let cancelled = one.lock("k").wait(LONG);
        let _ = poll_once(pin!(cancelled.acquire())).await;
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

pub(crate) async fn a_call_that_is_not_polled_blocks_its_client_for_its_lease_only(place: Place) {
    let lease = Duration::from_secs(1);
    let options = LockClient::builder()
        .response_timeout(lease)
        .default_lease(lease);
    let (one, other) = (place.client_of(options).await, place.client().await);
    for way in ["at once", "by its own client", "by another client"] {
        let lock = one.lock("k").wait(LONG);
        let mut call = Box::pin(lock.acquire());
        let holder = match way {
            "by its own client" => Some(&one),
            "by another client" => Some(&other),
            _ => None,
        };
        if let Some(holder) = holder {
            let held = holder.lock("k").wait(LONG).acquire().await.expect("free");
            wait(call.as_mut()).await;
            held.release().await.expect("held");
        } else if let Poll::Ready(held) = poll_once(call.as_mut()).await {
            // The embedded store replies at once.
            held.expect("free").release().await.expect("held");
            continue;
        }
        let next = within(LONG, way, one.lock("k").wait(LONG).acquire()).await;
        let next = next.unwrap_or_else(|error| panic!("{way}: {error}"));
        let early = timeout(A_WHILE, call.as_mut()).await;
        assert!(early.is_err(), "{way}: {early:?} beside {next:?}");
        assert!(next.is_valid());
        next.release().await.expect("it is the only holder");
        let last = within(LONG, "the call is polled again", call).await;
        last.expect("granted").release().await.expect("held");
    }
}
