//! A Redis Cluster: each lock lives at the master of its slot.

mod across;
mod addresses;
mod failures;
mod messages;
mod moves;
mod permissions;
mod renewals;
mod several;

use rlock_core::LockClient;
use rlock_testkit::{MASTERS, RedisCluster, eventually, leftovers::stays};
use tokio::sync::OnceCell;

use crate::common::{LONG, connect, name, queue};

/// Returns a cluster for tests that cause no faults.
async fn shared() -> &'static RedisCluster {
    static SHARED: OnceCell<RedisCluster> = OnceCell::const_new();
    SHARED.get_or_init(RedisCluster::start).await
}

async fn client(cluster: &RedisCluster) -> LockClient {
    connect(&cluster.url()).await
}

/// Returns keys of this test, one for each master.
async fn keys(cluster: &RedisCluster, begins: &str) -> Vec<String> {
    let mut keys = Vec::new();
    for master in 0..MASTERS {
        keys.push(cluster.key_at(master, begins).await);
    }
    keys
}

/// Waits until no node has any key of the lock but those that stay.
async fn assert_soon_clear(cluster: &RedisCluster, key: &str) {
    let pattern = format!("{}*", name(key));
    for n in 0..2 * MASTERS {
        let node = cluster.node(n);
        if node.answers() {
            eventually(LONG, "nothing is left but what stays", async || {
                let keys = node.keys(&pattern).await;
                keys.iter().all(|key| stays(key))
            })
            .await;
        }
    }
}

async fn assert_soon_free(cluster: &RedisCluster, key: &str) {
    let lock = name(key);
    eventually(LONG, "the lock is released", async || {
        !cluster.command::<bool>(&lock, &["EXISTS", &lock]).await
    })
    .await;
}

async fn assert_soon_queued(cluster: &RedisCluster, key: &str, waiting: u64) {
    let queue = queue(key);
    eventually(LONG, "the waiters are queued", async || {
        cluster.command::<u64>(&queue, &["ZCARD", &queue]).await == waiting
    })
    .await;
}
