//! A call for several keys whose reply is lost: its locks may have been rolled back.

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{Proxy, RedisServer, Request, eventually};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, client, connect, count,
    hold, its_turn, ms,
};

#[distributed_lock(key = ["a", "b"], wait = "60s", client = client)]
async fn a_and_b(client: &LockClient) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// Returns whether a request is a script for two keys.
fn asks_for_two(request: &Request) -> bool {
    request.is("EVALSHA") && request.words.get(2).is_some_and(|keys| keys == b"2")
}

#[tokio::test]
async fn a_grant_that_may_be_rolled_back_is_not_used_by_the_next_waiter() {
    for lost_once in [true, false] {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let (one, other) = (connect(&proxy.url()).await, client(&server).await);
        let b = hold(&other, "b").await;

        // The first caller requests both and is refused, but does not receive that reply.
        let lost = if lost_once { 1 } else { u64::MAX };
        proxy.drop_replies_if(lost, asks_for_two);
        let several = tokio::spawn({
            let one = one.clone();
            async move { a_and_b(&one).await }
        });
        tokio::time::sleep(ms(100)).await;
        let next = acquiring(one.lock("a").lease(LASTING).wait(LONG));
        eventually(LONG, "it requests both", async || proxy.replies_lost() > 0).await;
        let third = other.lock("a").lease(LASTING).try_acquire().await;
        let third = third.expect("a reply");
        several.abort();

        tokio::time::sleep(ms(100)).await;
        proxy.pass();
        if let Some(third) = &third {
            assert!(!next.is_finished(), "another client has the lock");
            assert_eq!(count(&server, third).await, Some(1));
        }
        if let Some(third) = third {
            third.release().await.expect("held");
        }
        let next = its_turn(next).await;
        assert_eq!(count(&server, &next).await, Some(1), "the server agrees");
        assert!(next.is_valid());
        drop((next, b));
        assert_nothing_left(&server).await;
    }
}

/// The store hands `a` off to the first caller, which requests both again. The refusal rolls `a`
/// back.
#[tokio::test]
async fn a_lock_that_was_handed_off_and_rolled_back_is_not_used_by_the_next_waiter() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (one, other) = (connect(&proxy.url()).await, client(&server).await);
    let a = hold(&other, "a").await;
    let several = tokio::spawn({
        let one = one.clone();
        async move { a_and_b(&one).await }
    });
    assert_soon_queued(&server, "a", 1).await;
    let b = hold(&other, "b").await;
    let next = acquiring(one.lock("a").lease(LASTING).wait(LONG));
    proxy.drop_replies_if(u64::MAX, asks_for_two);
    a.release().await.expect("held");
    eventually(LONG, "it requests both", async || proxy.replies_lost() > 0).await;
    let third = other.lock("a").lease(LASTING).wait(LONG).acquire().await;
    let third = third.expect("it was rolled back");
    several.abort();
    tokio::time::sleep(ms(200)).await;
    assert!(!next.is_finished(), "another client has the lock");
    assert_eq!(count(&server, &third).await, Some(1));
    proxy.pass();
    third.release().await.expect("held");
    drop((its_turn(next).await, b));
    assert_nothing_left(&server).await;
}
