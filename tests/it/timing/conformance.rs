//! Tests that the conformance suite leaves out, because a client on a busy machine may answer too late.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use rlock_core::LostCause;
use rlock_testkit::{RedisServer, within};

use crate::common::{LASTING, LONG, acquiring, assert_soon_queued, client, its_turn};

/// The first waiter asks again after five seconds at the latest, the others only when they become first.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_waiter_is_first_at_once_when_the_first_gives_up() {
    let server = RedisServer::start();
    let (one, other, goes) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    let kept = Duration::from_millis(1_500);
    let _held = one
        .lock("k")
        .at_least(kept)
        .lease(LASTING)
        .acquire()
        .await
        .expect("free");
    let lock = goes.lock("k").wait(LONG);
    let waiting = {
        let mut going = pin!(lock.acquire());
        tokio::select! {
            outcome = going.as_mut() => panic!("it has to wait: {outcome:?}"),
            () = assert_soon_queued(&server, "k", 1) => {}
        }
        let waiting = acquiring(other.lock("k").wait(LONG));
        assert_soon_queued(&server, "k", 2).await;
        waiting
    };
    assert_soon_queued(&server, "k", 1).await;
    let since = Instant::now();
    // The server reports this to the first waiter only.
    assert!(server.del("lock:{k}").await);
    drop(its_turn(waiting).await);
    let took = since.elapsed();
    assert!(took < Duration::from_millis(3_500), "{took:?}");
}

/// The holder compares the tokens if it answers within 200 ms. Otherwise the store does, which knows only the first token of a
/// grant.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn the_token_of_a_later_hold_of_the_same_client_is_known() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("tenant:7").retain(LONG);
    let mut tokens = Vec::new();
    for _ in 0..40 {
        let guard = lock.acquire().await.expect("free");
        tokens.push(guard.fencing_token());
        guard.release().await.expect("held");
    }
    let guard = lock.acquire().await.expect("free");
    for earlier in tokens {
        let released = other.release_if("tenant:7", earlier).await;
        assert!(!released.expect("a reply"));
    }
    let token = guard.fencing_token();
    let info = other.inspect("tenant:7").await.expect("a reply");
    assert_eq!(info.expect("held").token, Some(token));
    assert!(other.release_if("tenant:7", token).await.expect("a reply"));
    let cause = within(LONG, "the loss is reported", guard.lost()).await;
    assert_eq!(cause, LostCause::Revoked);
    let next = other
        .lock("tenant:7")
        .wait(LONG)
        .acquire()
        .await
        .expect("free");
    assert!(next.fencing_token() > token);
}
