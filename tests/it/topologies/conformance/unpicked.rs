//! A grant that no call has picked up yet.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{Place, eventually, within};
use tokio::time::timeout;

use super::LONG;

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

/// Acquires the lock for the other client, and checks that the call does not hold it until that client releases it.
async fn assert_follows(mut call: Pin<&mut impl Future<Output = Outcome>>, other: &LockClient) {
    let next = other.lock("k").wait(LONG).acquire().await.expect("free");
    if let Ok(early) = timeout(A_WHILE, call.as_mut()).await {
        panic!("{early:?} at the same time as {next:?}");
    }
    let token = next.fencing_token();
    next.release().await.expect("it is the only holder");
    let last = within(LONG, "the call has its turn", call).await;
    assert!(last.expect("granted").fencing_token() > token);
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
    // The servers of a quorum grant it one after the other, each with its own fence, so the token is compared until all have.
    eventually(LONG, "it is granted, and released", async || {
        let info = other.inspect("k").await.expect("a reply");
        let Some(token) = info.and_then(|info| info.token) else {
            return false;
        };
        other.release_if("k", token).await.expect("a reply")
    })
    .await;
    assert_follows(call.as_mut(), &other).await;
}
