//! A Redis Cluster: each lock lives at the master of its slot.

mod across;
mod addresses;
mod failures;
mod messages;
mod moves;
mod permissions;
mod renewals;
mod several;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use rlock_core::LockClient;
use rlock_testkit::{
    MASTERS, RedisCluster, RedisServer, SharedExclusion, assert_taken, eventually,
};
use tokio::sync::OnceCell;

use crate::common::{LASTING, LONG, acquiring, connect, hold, its_turn, name, worker};

/// Returns a cluster for tests that cause no faults.
async fn shared() -> &'static RedisCluster {
    static SHARED: OnceCell<RedisCluster> = OnceCell::const_new();
    SHARED.get_or_init(RedisCluster::start).await
}

/// Returns whether a server can report permissions: since Redis 7.
async fn is_since_redis_7(node: &RedisServer) -> bool {
    let ask = "return redis.acl_check_cmd and 1 or 0";
    node.command::<u64>(&["EVAL", ask, "0"]).await == 1
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

/// Waits until no node has any key of the lock but its fence.
async fn assert_soon_only_fences(cluster: &RedisCluster, key: &str) {
    let pattern = format!("{}*", name(key));
    for n in 0..2 * MASTERS {
        let node = cluster.node(n);
        if node.answers() {
            eventually(LONG, "nothing is left but fences", async || {
                let keys = node.keys(&pattern).await;
                keys.iter().all(|key| key.ends_with(":fence"))
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
    let queue = format!("{}:queue", name(key));
    eventually(LONG, "the waiters are queued", async || {
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
        assert_taken(&other, &key).await;
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        let info = other.inspect(&key).await.expect("a reply").expect("held");
        assert_eq!(info.count, 2);
        nested.release().await.expect("held");
        let before = guard.fencing_token();
        guard.release().await.expect("held");
        let next = other.lock(&key).acquire().await.expect("free");
        assert!(next.fencing_token() > before);
        next.release().await.expect("held");
        assert_soon_free(cluster, &key).await;
    }
}

#[tokio::test]
async fn a_waiter_is_notified_of_its_turn_at_once() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    for key in keys(cluster, "turn").await {
        let guard = hold(&one, &key).await;
        let waiting = acquiring(other.lock(&key).wait(LONG));
        assert_soon_queued(cluster, &key, 1).await;
        let started = Instant::now();
        guard.release().await.expect("held");
        let next = its_turn(waiting).await;
        // By its timer the waiter would only retry after five seconds.
        assert!(started.elapsed() < Duration::from_secs(3), "{key}");
        next.release().await.expect("held");
    }
}

/// Lets processes enter a lock by turns while `meanwhile` runs. Checks exclusion and tokens.
async fn contend(
    cluster: &RedisCluster,
    key: &str,
    entries: u64,
    meanwhile: impl Future<Output = ()>,
) {
    const PROCESSES: u64 = 3;
    const TASKS: u64 = 2;
    let notes = RedisServer::start();
    let witness = SharedExclusion::connect(&notes.url(), key).await;
    let (url, notes_url) = (cluster.url(), notes.url());
    let (tasks, each) = (TASKS.to_string(), entries.to_string());
    let words = ["contend", &url, &notes_url, key, &tasks, &each];
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| worker(&words)).collect();
    for worker in &mut workers {
        worker.expect_line(LONG, "ready").await;
    }
    for worker in &mut workers {
        worker.send("go");
    }
    let done = async {
        for worker in &mut workers {
            worker.expect_line(LONG * 4, "done").await;
            assert!(worker.wait(LONG).await.success());
        }
    };
    tokio::join!(done, meanwhile);
    witness.assert_held().await;
    let all = PROCESSES * TASKS * entries;
    assert_eq!(witness.entries().await, all);
    let list = format!("tokens:{key}");
    let tokens: Vec<u64> = notes.command(&["LRANGE", &list, "0", "-1"]).await;
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_soon_only_fences(cluster, key).await;
}

#[tokio::test]
async fn processes_enter_one_at_a_time_and_are_notified_of_their_turns() {
    let cluster = shared().await;
    let key = cluster.key_at(1, "processes").await;
    let started = Instant::now();
    contend(cluster, &key, 20, async {}).await;
    // With timers alone, a turn takes five seconds.
    assert!(started.elapsed() < LONG * 2);
}

#[tokio::test]
async fn leases_at_all_masters_are_renewed() {
    const LEASE: Duration = Duration::from_secs(3);
    let cluster = shared().await;
    let client = client(cluster).await;
    let mut guards = Vec::new();
    for n in 0..60 {
        let key = format!("renewed-{n}");
        let guard = client.lock(&key).lease(LEASE).acquire().await;
        guards.push(guard.expect("free"));
    }
    tokio::time::sleep(LEASE * 2).await;
    for guard in guards {
        assert!(guard.is_valid(), "{}", guard.key());
        guard.release().await.expect("held");
    }
}
