//! Several keys of different masters: a master that fails during the acquire, and the order of the
//! requests.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, eventually, within};

use super::{assert_soon_only_fences, client, shared};
use crate::common::{LONG, ms, name};

/// A limit for calls that must not depend on the lease of [`both`].
const SOON: Duration = Duration::from_secs(5);

#[distributed_lock(key = ["<a>", "<b>"], lease = "60s", wait = "0s", client = client)]
async fn both(client: &LockClient, a: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// Starts a cluster whose second master has no replica, with a client and keys of the first two
/// masters. The first master's lock is acquired first.
async fn two_masters() -> (RedisCluster, LockClient, [String; 2]) {
    let user = RedisServer::builder().acl_user("locker", "on >secret ~* &* +@all");
    let cluster = RedisCluster::of(&user).await;
    cluster
        .replica_of(1)
        .config_set("cluster-replica-no-failover", "yes")
        .await;
    let url = cluster.url();
    let url = url.replace("redis-cluster://", "redis-cluster://locker:secret@");
    let client = LockClient::builder().response_timeout(ms(1000));
    let client = client.connect(&url).await.expect("it is there");
    let keys = [cluster.key_at(0, "k").await, cluster.key_at(1, "k").await];
    both(&client, &keys[0], &keys[1]).await.expect("free");
    (cluster, client, keys)
}

/// Returns the fence of a lock, which counts its grants.
async fn last_token(server: &RedisServer, key: &str) -> u64 {
    let fence = format!("{}:fence", name(key));
    server.command(&["GET", &fence]).await
}

async fn assert_soon_free_at(server: &RedisServer, key: &str) {
    eventually(SOON, "the lock is released", async || {
        !server.exists(&name(key)).await
    })
    .await;
}

#[derive(Debug, Clone, Copy)]
enum Failure {
    Refuses,
    StandsStill,
    Dies,
}

impl Failure {
    async fn begins(self, server: &RedisServer) {
        match self {
            Self::Refuses => server.set_user("locker", "-evalsha").await,
            Self::StandsStill => server.pause(),
            Self::Dies => server.kill(),
        }
    }

    async fn ends(self, server: &RedisServer) {
        match self {
            Self::Refuses => server.set_user("locker", "+evalsha").await,
            Self::StandsStill => server.resume(),
            Self::Dies => {}
        }
    }
}

#[tokio::test]
async fn a_lock_is_released_when_the_master_of_the_next_one_fails() {
    let (cluster, client, [first, second]) = two_masters().await;
    for failure in [Failure::Refuses, Failure::StandsStill, Failure::Dies] {
        let before = last_token(cluster.node(0), &first).await;
        failure.begins(cluster.node(1)).await;
        let error = both(&client, &first, &second).await;
        let error = error.expect_err("one of them cannot be had");
        let is_right = match failure {
            Failure::Refuses => matches!(error, LockError::Store { .. }),
            Failure::StandsStill | Failure::Dies => matches!(error, LockError::Unavailable { .. }),
        };
        assert!(is_right, "{failure:?}: {error:?}");
        let after = last_token(cluster.node(0), &first).await;
        assert!(after > before, "{failure:?}: the first was granted");
        assert_soon_free_at(cluster.node(0), &first).await;
        failure.ends(cluster.node(1)).await;
        for key in [&first, &second] {
            assert_soon_only_fences(&cluster, key).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_between_two_masters_leaves_nothing_at_either() {
    let (cluster, client, [first, second]) = two_masters().await;
    for _ in 0..3 {
        cluster.node(1).pause();
        let call = tokio::spawn({
            let (client, first, second) = (client.clone(), first.clone(), second.clone());
            async move { both(&client, &first, &second).await }
        });
        eventually(LONG, "the first is taken", async || {
            cluster.node(0).exists(&name(&first)).await
        })
        .await;
        call.abort();
        assert!(call.await.expect_err("aborted").is_cancelled());
        assert_soon_free_at(cluster.node(0), &first).await;
        // The node executes the requests of its pause.
        cluster.node(1).resume();
        assert_soon_free_at(cluster.node(1), &second).await;
        cluster.settled().await;
        for key in [&first, &second] {
            assert_soon_only_fences(&cluster, key).await;
        }
    }
}

#[distributed_lock(key = ["a{<tag>}", "<b>", "c{<tag>}"], wait = "60s", client = client)]
async fn around(client: &LockClient, tag: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["<b>", "c{<tag>}"], wait = "60s", client = client)]
async fn upwards(client: &LockClient, tag: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["c{<tag>}", "<b>"], wait = "60s", client = client)]
async fn downwards(client: &LockClient, tag: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// With different orders, two calls for the same locks could block each other again and again.
#[tokio::test]
async fn slots_are_asked_in_the_same_order_whatever_the_names_of_the_keys() {
    let cluster = shared().await;
    let client = client(cluster).await;
    for master in 0..MASTERS {
        let tag = cluster.key_at(master, "tag").await;
        let between = cluster.key_at(master, "b").await;
        let slots = [
            cluster.slot_of(&format!("{{{tag}}}")).await,
            cluster.slot_of(&format!("{{{between}}}")).await,
        ];
        assert_ne!(slots[0], slots[1], "another key would do");
        let mut watch = cluster.node(master).watch_commands().await;
        let mut orders = Vec::new();
        for call in 0..3 {
            let done = async {
                match call {
                    0 => around(&client, &tag, &between).await,
                    1 => upwards(&client, &tag, &between).await,
                    _ => downwards(&client, &tag, &between).await,
                }
            };
            let done = within(LONG, "they are free", done).await;
            done.expect("its turn");
            let is_of = |words: &[String], tag: &str| {
                let tag = format!("{{{tag}}}");
                words.iter().any(|word| word.contains(&tag))
            };
            // A request for each slot acquires the locks. The releases follow.
            let order: Vec<bool> = watch
                .seen()
                .await
                .iter()
                .filter(|command| command.is("EVALSHA"))
                .map(|command| [&tag, &between].map(|one| is_of(&command.words, one)))
                .filter(|which| which.contains(&true))
                .map(|[is_tag, _]| is_tag)
                .take(2)
                .collect();
            assert_ne!(order[0], order[1], "a request for each slot");
            orders.push(order[0]);
            watch.clear().await;
        }
        assert_eq!(orders, [slots[0] < slots[1]; 3], "{slots:?}");
    }
}
