//! A Redis Cluster: each lock at the master that has its slot.

mod common;

use std::time::Duration;

use rlock_core::{LockClient, LockError};
use rlock_tests::{MASTERS, RedisCluster, eventually, within};
use tokio::sync::OnceCell;

use common::{LASTING, LONG, connect, ms, name};

/// For tests that do not take it apart.
async fn shared() -> &'static RedisCluster {
    static SHARED: OnceCell<RedisCluster> = OnceCell::const_new();
    SHARED.get_or_init(RedisCluster::start).await
}

async fn client(cluster: &RedisCluster) -> LockClient {
    connect(&cluster.url()).await
}

/// Keys of this test, one at each master.
async fn keys(cluster: &RedisCluster, begins: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for master in 0..MASTERS {
        keys.push(cluster.key_at(master, begins).await);
    }
    keys
}

async fn assert_soon_free(cluster: &RedisCluster, key: &str) {
    let lock = name(key);
    eventually(LONG, "the lock is given back", async || {
        !cluster.command::<bool>(&lock, &["EXISTS", &lock]).await
    })
    .await;
}

async fn assert_soon_in_line(cluster: &RedisCluster, key: &str, waiting: u64) {
    let queue = format!("{}:queue", name(key));
    eventually(LONG, "the line has its waiters", async || {
        cluster.command::<u64>(&queue, &["ZCARD", &queue]).await == waiting
    })
    .await;
}

#[tokio::test]
async fn a_lock_at_any_master_is_held_by_one_client_and_counts_its_entries() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    for key in keys(cluster, "one").await {
        let lock = one.lock(&key).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        let taken = other.lock(&key).try_acquire().await.expect("an answer");
        assert!(taken.is_none(), "{key}");
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        let info = other.inspect(&key).await.expect("an answer").expect("held");
        assert_eq!(info.count, 2);
        nested.release().await.expect("held");
        let token = guard.fencing_token();
        guard.release().await.expect("held");
        let next = other.lock(&key).acquire().await.expect("free");
        assert!(next.fencing_token() > token);
        next.release().await.expect("held");
        assert_soon_free(cluster, &key).await;
    }
}

#[tokio::test]
async fn a_waiter_is_told_of_its_turn_at_once() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    for key in keys(cluster, "turn").await {
        let guard = one.lock(&key).lease(LASTING).acquire().await.expect("free");
        let waiting = other.lock(&key).wait(LONG);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        assert_soon_in_line(cluster, &key, 1).await;
        let started = std::time::Instant::now();
        guard.release().await.expect("held");
        let next = within(LONG, "its turn", waiting).await.expect("no panic");
        // By its timer it would ask again after five.
        assert!(started.elapsed() < Duration::from_secs(3), "{key}");
        next.expect("its turn").release().await.expect("held");
    }
}
