//! How long the server keeps a fence after the last use of its lock.

use std::time::Duration;

use rlock_core::{LockClient, StoreUrl};
use rlock_testkit::RedisServer;
use tokio::time::sleep;

use super::clock::HOUR;
use crate::common::{LONG, begin, builder, client, fence};

const LEASE: Duration = Duration::from_secs(60);
/// A short remaining time of a fence, which the next use must extend.
const LITTLE: &str = "30000";
/// How much longer the server may keep a fence.
const GRACE: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// The lease of a hold that lasts for longer than that.
const SHORT: Duration = Duration::from_secs(6);

/// Shortens the expiry of the fence.
async fn advance_time(server: &RedisServer, key: &str) {
    let put: bool = server.command(&["PEXPIRE", &fence(key), LITTLE]).await;
    assert!(put, "{key} has a fence");
}

async fn assert_stays(server: &RedisServer, key: &str, time: Duration) {
    let stays = Duration::from_millis(server.pttl(&fence(key)).await.unsigned_abs());
    let (least, most) = (time.saturating_sub(MINUTE / 3), time + GRACE);
    assert!((least..=most).contains(&stays), "{key}: {stays:?}");
}

/// Checks every way of granting a token.
async fn assert_stays_after_each_use(
    client: &LockClient,
    server: &RedisServer,
    retention: Duration,
) {
    let lock = client.lock("k").lease(LEASE).wait(LONG);
    let held = lock.acquire().await.expect("free");
    assert_stays(server, "k", retention + LEASE).await;
    held.release().await.expect("held");
    advance_time(server, "k").await;
    let held = lock.acquire().await.expect("free");
    assert_stays(server, "k", retention + LEASE).await;
    // The next local waiter asks the server, because its lease is not renewed.
    advance_time(server, "k").await;
    let unrenewed = lock.clone().watchdog(false);
    let mut next = Box::pin(unrenewed.acquire());
    begin(&mut next).await;
    held.release().await.expect("held");
    let held = next.await.expect("its turn");
    assert_stays(server, "k", retention + LEASE).await;
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_fence_is_kept_for_the_documented_time_after_each_use() {
    let long = HOUR * 24 * 14;
    let builders = [(builder(), MINUTE), (builder().fence_retention(long), long)];
    for (builder, retention) in builders {
        let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
        let client = builder.clone().connect(&servers[0].url()).await;
        let client = client.expect("it is up");
        assert_stays_after_each_use(&client, &servers[0], retention).await;
        let quorum = builder
            .connect(StoreUrl::quorum(servers.iter().map(RedisServer::url)))
            .await;
        let quorum = quorum.expect("all are up");
        let guard = quorum.lock("q").lease(LEASE).acquire().await;
        guard.expect("free").release().await.expect("held");
        let mut kept = 0;
        for server in &servers {
            if server.exists(&fence("q")).await {
                assert_stays(server, "q", retention).await;
                kept += 1;
            }
        }
        assert!(kept >= 2, "a majority granted it");
    }
}

/// A lock may also be handed off, with a shorter lease in between, so the time of a shared hold counts from its grant.
#[tokio::test]
async fn a_fence_stays_for_its_time_after_the_end_of_a_hold_that_was_longer_than_its_lease() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let exclusive = client.lock("k").lease(SHORT);
    for lock in [exclusive.clone(), exclusive.shared().lease(LEASE)] {
        let held = lock.acquire().await.expect("free");
        advance_time(&server, "k").await;
        sleep(SHORT).await;
        held.release().await.expect("held");
        assert_stays(&server, "k", MINUTE).await;
    }
}

/// Checks the cost of a key that is never locked again.
#[tokio::test]
async fn a_fence_takes_the_documented_memory() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    guard.release().await.expect("held");
    let usage = ["MEMORY", "USAGE", &fence("order:42")];
    let bytes: u64 = server.command(&usage).await;
    assert!((60..=180).contains(&bytes), "{bytes}");
}
