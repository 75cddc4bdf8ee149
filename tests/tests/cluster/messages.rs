//! How those who wait are told, and by which nodes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rlock_core::LockClient;
use rlock_tests::{MASTERS, RedisCluster, RedisServer, eventually};

use crate::{
    assert_soon_in_line, client,
    common::{LASTING, LONG, acquiring, connect, hold, its_turn, name, resp2},
    keys, shared,
};

/// Hands the lock from one client to another that waits for it; answers how long that took.
async fn hand_over(
    cluster: &RedisCluster,
    key: &str,
    from: &LockClient,
    to: &LockClient,
) -> Duration {
    let guard = from.lock(key).lease(LASTING).wait(LONG).acquire().await;
    let guard = guard.expect("free");
    let waiting = acquiring(to.lock(key).lease(LASTING).wait(LONG));
    assert_soon_in_line(cluster, key, 1).await;
    let started = Instant::now();
    guard.release().await.expect("held");
    let next = its_turn(waiting).await;
    let took = started.elapsed();
    next.release().await.expect("held");
    took
}

/// How often something was published there: for one slot, and for all.
async fn published(node: &RedisServer) -> (u64, u64) {
    let of_slot = node.command_calls("spublish").await;
    (of_slot, node.command_calls("publish").await)
}

/// Whether the server has messages that only the nodes of one slot pass on: from Redis 7.0 on.
pub(crate) async fn has_shards(node: &RedisServer) -> bool {
    let known: Vec<redis::Value> = node.command(&["COMMAND", "INFO", "SSUBSCRIBE"]).await;
    known != [redis::Value::Nil]
}

async fn assert_soon_listening(node: &RedisServer, clients: usize) {
    eventually(LONG, "they listen to the slot", async || {
        let channels: Vec<String> = node.command(&["PUBSUB", "SHARDCHANNELS"]).await;
        channels.len() == clients
    })
    .await;
}

/// What is published at one node is told by all, but how many heard it is counted at that one.
#[tokio::test]
async fn a_client_listens_at_each_master_by_another_name() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster).await;
    let mut all = BTreeSet::new();
    for (master, key) in keys(&cluster, "k").await.iter().enumerate() {
        let guard = client.lock(key).acquire().await.expect("free");
        guard.release().await.expect("held");
        let node = cluster.node(master);
        eventually(LONG, "it listens", async || {
            let channels: Vec<String> = node.command(&["PUBSUB", "CHANNELS"]).await;
            channels.len() == 1
        })
        .await;
        all.extend(node.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await);
    }
    assert_eq!(all.len(), MASTERS, "{all:?}");
}

#[tokio::test]
async fn who_has_waited_in_a_slot_is_told_by_the_nodes_of_that_slot_alone() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(0, "k").await;
    let slot = cluster.slot_of(&name(&key)).await;
    if !has_shards(cluster.node(0)).await {
        let before = published(cluster.node(0)).await;
        for told in 1..4 {
            let took = hand_over(&cluster, &key, &one, &other).await;
            assert!(took < Duration::from_secs(3), "{took:?}");
            let after = published(cluster.node(0)).await;
            assert_eq!(after, (0, before.1 + told), "by all nodes");
        }
        return;
    }
    for (from, to) in [(0, 1), (1, 0)] {
        hand_over(&cluster, &key, &one, &other).await;
        let node = cluster.node(from);
        assert_soon_listening(node, 1).await;
        let before = published(node).await;
        let took = hand_over(&cluster, &key, &one, &other).await;
        assert!(took < Duration::from_secs(3), "{took:?}");
        let after = published(node).await;
        assert_eq!(after, (before.0 + 1, before.1), "by the slot's nodes alone");

        // The server ends what is listened to there, and so it is listened to elsewhere.
        cluster.move_slot(slot, from, to).await;
        cluster.settled().await;
        assert_soon_listening(node, 0).await;
        let took = hand_over(&cluster, &key, &one, &other).await;
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

#[tokio::test]
async fn no_client_listens_to_more_than_some_slots() {
    const SLOTS: usize = 140;
    let cluster = RedisCluster::start().await;
    if !has_shards(cluster.node(0)).await {
        // It listens to none.
        return;
    }
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let mut n = 0;
    for done in 0..SLOTS {
        let key = loop {
            let key = format!("k{n}");
            n += 1;
            if cluster.owner_of(&name(&key)).await.port() == cluster.node(0).port() {
                break key;
            }
        };
        hand_over(&cluster, &key, &one, &other).await;
        assert_soon_listening(cluster.node(0), (done + 1).min(128)).await;
    }
}

#[tokio::test]
async fn who_may_not_listen_to_slots_is_told_by_all_nodes() {
    let mut builder = RedisServer::builder();
    if has_shards(&RedisServer::start()).await {
        builder = builder.acl_user("default", "on nopass ~* &* +@all -ssubscribe");
    }
    let cluster = RedisCluster::of(&builder).await;
    let by_resp2 = connect(&resp2(&cluster.url())).await;
    let by_resp3 = client(&cluster).await;
    for key in keys(&cluster, "k").await {
        for (from, to) in [(&by_resp2, &by_resp3), (&by_resp3, &by_resp2)] {
            for _ in 0..2 {
                let took = hand_over(&cluster, &key, from, to).await;
                assert!(took < Duration::from_secs(3), "{key}: {took:?}");
            }
        }
    }
}

/// The lock is deleted by hand, so no release follows.
#[tokio::test]
async fn a_lock_that_goes_without_a_release_has_its_next_holder_soon() {
    let cluster = shared().await;
    for key in keys(cluster, "gone").await {
        let (holder, waiter) = (client(cluster).await, client(cluster).await);
        let guard = hold(&holder, &key).await;
        let waiting = acquiring(waiter.lock(&key).lease(LASTING).wait(LONG));
        assert_soon_in_line(cluster, &key, 1).await;
        let deleted: u64 = cluster.command(&key, &["DEL", &name(&key)]).await;
        assert_eq!(deleted, 1);
        let started = Instant::now();
        let next = its_turn(waiting).await;
        let took = started.elapsed();
        assert!(took < Duration::from_millis(3500), "{took:?}");
        drop(guard);
        next.release().await.expect("held");
    }
}
