//! Attacks by a user that may publish to a client's channel, but not lock. `docs/security.md` lists
//! the trusted parties.

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{RedisServer, assert_taken, eventually, within};

use crate::common::{
    Acquiring, LASTING, LONG, client, count, enqueued, hold, ms, name, wait_queue,
};

/// Returns a server, the holder of the lock `k`, and a waiter of another process.
async fn held_and_waited_for() -> (RedisServer, LockGuard, (LockClient, Acquiring)) {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let waiting = enqueued(&server, other.lock("k").lease(LASTING).wait(LONG)).await;
    (server, held, (other, waiting))
}

/// Returns the first owner in the queue, and its client's channel.
async fn first_waiter(server: &RedisServer) -> (String, String) {
    let owner = wait_queue(server, "k").await.swap_remove(0);
    let channel = format!("lock:client:{}", &owner[..36]);
    (owner, channel)
}

async fn publish(server: &RedisServer, channel: &str, message: &str) {
    let heard: u64 = server.command(&["PUBLISH", channel, message]).await;
    assert_eq!(heard, 1, "the client listens");
}

/// The largest fence: tokens stay below 2^53.
const LARGEST: u64 = (1 << 46) - 1;

/// A waiter with a recent request accepts the grant. Its first renewal, a few milliseconds later,
/// finds no lock. The server's data stays the same.
#[tokio::test]
async fn a_forged_grant_that_is_accepted_ends_soon_and_leaves_the_holder_its_lock() {
    let (server, held, (other, waiting)) = held_and_waited_for().await;
    let (owner, channel) = first_waiter(&server).await;
    let (ask, forged) = (
        format!("{owner}  0 {}", name("k")),
        format!("{owner} {LARGEST}/0 86400000 {}", name("k")),
    );
    eventually(
        LONG,
        "the waiter retries, and receives the forged grant",
        async || {
            publish(&server, &channel, &ask).await;
            tokio::time::sleep(ms(20)).await;
            publish(&server, &channel, &forged).await;
            tokio::time::sleep(ms(20)).await;
            waiting.is_finished()
        },
    )
    .await;
    let misled = waiting.await.expect("no panic").expect("it is accepted");
    assert_eq!(misled.token().as_u64(), LARGEST * 128);
    assert!(misled.valid_for() < ms(1000), "{:?}", misled.valid_for());
    within(LONG, "it is lost", misled.lost()).await;
    assert!(held.is_valid());
    assert_eq!(count(&server, &held).await, Some(1));
    let error = misled.release().await.expect_err("it never had it");
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    assert_eq!(count(&server, &held).await, Some(1));
    assert_taken(&other, "k").await;
    held.release().await.expect("held");
    let next = other.lock("k").acquire().await.expect("free");
    next.release().await.expect("held");
}
