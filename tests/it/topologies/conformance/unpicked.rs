//! A grant that no call has picked up yet.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use rlock_core::{Lock, LockClient, LockError, LockGuard};
use rlock_testkit::{Place, eventually, within};
use tokio::time::timeout;

use super::LONG;
use crate::common::builder;

/// Long enough for messages of a busy server, and for a call to begin a hold that it must not begin.
const A_WHILE: Duration = Duration::from_millis(200);

type Outcome = Result<LockGuard, LockError>;

/// Polls the call once: it sends its request.
async fn poll_once<F: Future>(mut call: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await
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

/// Returns a call that has sent its request and does not read the reply. Some stores reply while the request is being sent.
async fn unread(lock: &Lock) -> Option<Pin<Box<impl Future<Output = Outcome>>>> {
    for _ in 0..100 {
        let mut call = Box::pin(lock.acquire());
        match poll_once(call.as_mut()).await {
            Poll::Pending => return Some(call),
            Poll::Ready(early) => early.expect("free").release().await.expect("held"),
        }
    }
    None
}

/// Acquires the lock for the other client, and checks that the call does not hold it until that client releases it.
async fn assert_follows(mut call: Pin<&mut impl Future<Output = Outcome>>, other: &LockClient) {
    let next = other.lock("k").wait(LONG).acquire().await.expect("free");
    if let Ok(early) = timeout(A_WHILE, call.as_mut()).await {
        panic!("{early:?} at the same time as {next:?}");
    }
    let token = next.token();
    next.release().await.expect("it is the only holder");
    let last = within(LONG, "the call has its turn", call).await;
    assert!(last.expect("granted").token() > token);
}

pub(crate) async fn a_lock_that_is_released_by_its_token_before_its_grant_is_read_is_not_held(
    place: Place,
) {
    let (one, other) = clients(&place).await;
    let lock = one.lock("k").wait(LONG);
    let Some(mut call) = unread(&lock).await else {
        return;
    };
    // The servers of a quorum grant it one after the other, each with its own fence, so the token is compared until all have.
    eventually(LONG, "it is granted, and released", async || {
        let info = other.inspect("k").await.expect("a reply");
        let Some(token) = info.and_then(|info| info.token()) else {
            return false;
        };
        other.release_if("k", token).await.expect("a reply")
    })
    .await;
    assert_follows(call.as_mut(), &other).await;
}

pub(crate) async fn a_call_that_does_not_read_its_reply_leaves_the_lock_to_the_next_one(
    place: Place,
) {
    // Longer than the test waits, because a call that is not polled also loses its turn after that time.
    let builder = builder().response_timeout(2 * LONG);
    let client = place.client_of(builder).await;
    let lock = client.lock("k").lease(2 * LONG).wait(LONG);
    let Some(mut call) = unread(&lock).await else {
        return;
    };
    let next = within(LONG, "the turn is taken back", lock.acquire()).await;
    let next = next.expect("free");
    assert!(poll_once(call.as_mut()).await.is_pending(), "it asks again");
    next.release().await.expect("held");
    let last = within(LONG, "the call has its turn", call).await;
    last.expect("free").release().await.expect("held");
}
