//! The expiry of fences.

use std::time::Duration;

use rlock_core::{LockClient, LockClientBuilder, LockError};
use rlock_testkit::{RedisCluster, RedisServer};

use crate::common::{LONG, begin, ms, name};

const HOUR: Duration = Duration::from_secs(60 * 60);
const LEASE: Duration = Duration::from_secs(60);
/// A short remaining time of a fence, which the next use must extend.
const LITTLE: &str = "60000";

fn fence(key: &str) -> String {
    format!("{}:fence", name(key))
}

/// Shortens the expiry of the fence.
async fn advance_time(server: &RedisServer, key: &str) {
    let put: bool = server.command(&["PEXPIRE", &fence(key), LITTLE]).await;
    assert!(put, "{key} has a fence");
}

async fn assert_stays(server: &RedisServer, key: &str, retention: Duration) {
    let stays = Duration::from_millis(server.pttl(&fence(key)).await.unsigned_abs());
    let (least, most) = (retention.saturating_sub(LEASE / 2), retention + LEASE);
    assert!((least..=most).contains(&stays), "{key}: {stays:?}");
}

/// Checks every way of granting a token.
async fn assert_stays_after_each_use(
    client: &LockClient,
    server: &RedisServer,
    retention: Duration,
) {
    let lock = client.lock("k").lease(LEASE).wait(LONG);
    let mut held = lock.acquire().await.expect("free");
    assert_stays(server, "k", retention).await;
    for _ in 0..5 {
        held.release().await.expect("held");
        advance_time(server, "k").await;
        held = lock.acquire().await.expect("free");
        assert_stays(server, "k", retention).await;
        // The next local waiter asks the server, because its lease is not renewed.
        advance_time(server, "k").await;
        let unrenewed = lock.clone().watchdog(false);
        let mut next = Box::pin(unrenewed.acquire());
        begin(&mut next).await;
        held.release().await.expect("held");
        held = next.await.expect("its turn");
        assert_stays(server, "k", retention).await;
    }
    held.release().await.expect("held");
}

fn keeping(retention: Option<Duration>) -> LockClientBuilder {
    let builder = LockClient::builder();
    match retention {
        Some(retention) => builder.fence_retention(retention),
        None => builder,
    }
}

#[tokio::test]
async fn a_fence_stays_as_long_as_is_said_after_each_use() {
    for retention in [None, Some(HOUR * 24), Some(HOUR * 24 * 14)] {
        let builder = keeping(retention);
        let retention = retention.unwrap_or(HOUR * 24);
        let server = RedisServer::start();
        let client = builder.clone().connect(&server.url()).await;
        let client = client.expect("it is up");
        assert_stays_after_each_use(&client, &server, retention).await;
        let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
        let quorum = builder.quorum(servers.iter().map(RedisServer::url)).await;
        let quorum = quorum.expect("all are up");
        let guard = quorum.lock("k").lease(LEASE).acquire().await;
        guard.expect("free").release().await.expect("held");
        for server in &servers {
            assert_stays(server, "k", retention).await;
        }
    }
}

#[tokio::test]
async fn a_cluster_keeps_fences_as_long_as_is_said() {
    let cluster = RedisCluster::start().await;
    let client = keeping(Some(HOUR * 72)).connect(&cluster.url()).await;
    let client = client.expect("it is up");
    for master in 0..rlock_testkit::MASTERS {
        let key = cluster.key_at(master, "k").await;
        let guard = client.lock(&key).lease(LEASE).acquire().await;
        let guard = guard.expect("free");
        assert_stays(cluster.node(master), &key, HOUR * 72).await;
        guard.release().await.expect("held");
    }
}

/// Checks the cost of a key that is never locked again.
#[tokio::test]
async fn a_fence_takes_as_much_memory_as_is_said() {
    let server = RedisServer::start();
    let client = crate::common::client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    guard.release().await.expect("held");
    tokio::time::sleep(ms(50)).await;
    let bytes: u64 = server
        .command(&["MEMORY", "USAGE", &fence("order:42")])
        .await;
    println!("{bytes} bytes");
    assert!((60..=180).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_fence_that_stays_for_less_than_the_longest_lease_is_refused() {
    for retention in [
        Duration::ZERO,
        HOUR,
        HOUR * 23,
        HOUR * 24 * 400,
        Duration::MAX,
    ] {
        let error = keeping(Some(retention)).in_memory();
        let error = error.expect_err("out of bounds");
        let LockError::InvalidOption { option, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*option, "fence_retention");
        assert!(error.to_string().contains("24h"), "{error}");
    }
    let client = keeping(Some(HOUR * 100))
        .in_memory()
        .expect("within bounds");
    drop(client.lock("k").acquire().await.expect("free"));
}
