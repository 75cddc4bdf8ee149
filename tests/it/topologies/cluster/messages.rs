//! Notifications of waiters, and the nodes that send them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rlock_core::LockClient;
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, eventually};

use super::{assert_soon_queued, client, keys, shared};
use crate::common::{LASTING, LONG, acquiring, connect, hold, its_turn, ms, name, resp2};

/// Hands the lock from one client to a waiting one, and returns how long it took.
async fn hand_over(
    cluster: &RedisCluster,
    key: &str,
    from: &LockClient,
    to: &LockClient,
) -> Duration {
    let guard = from.lock(key).lease(LASTING).wait(LONG).acquire().await;
    let guard = guard.expect("free");
    let waiting = acquiring(to.lock(key).lease(LASTING).wait(LONG));
    assert_soon_queued(cluster, key, 1).await;
    let started = Instant::now();
    guard.release().await.expect("held");
    let next = its_turn(waiting).await;
    let took = started.elapsed();
    next.release().await.expect("held");
    took
}

/// Returns the number of messages that this node has published.
async fn published(node: &RedisServer) -> u64 {
    node.command_calls("publish").await
}

/// All nodes deliver a message, but only the publishing node counts its receivers.
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
async fn holder_and_waiter_are_notified_by_the_node_of_the_slot() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(0, "k").await;
    let slot = cluster.slot_of(&name(&key)).await;
    for (from, to) in [(0, 1), (1, 0)] {
        let before = published(cluster.node(from)).await;
        let took = hand_over(&cluster, &key, &one, &other).await;
        assert!(took < Duration::from_secs(3), "{took:?}");
        // `wanted` to the holder, and the grant to the waiter. A waiter to which a change is reported asks again.
        let sent = published(cluster.node(from)).await - before;
        assert!((2..=4).contains(&sent), "{sent}");
        cluster.move_slot(slot, from, to).await;
        cluster.settled().await;
        // A client that learns of the move asks again, and the waiter asks the holder again.
        for client in [&one, &other] {
            hold(client, &key).await.release().await.expect("held");
        }
        tokio::time::sleep(ms(300)).await;
    }
}

#[tokio::test]
async fn clients_of_both_protocols_are_notified() {
    let cluster = shared().await;
    let by_resp2 = connect(&resp2(&cluster.url())).await;
    let by_resp3 = client(cluster).await;
    for key in keys(cluster, "told").await {
        for (from, to) in [(&by_resp2, &by_resp3), (&by_resp3, &by_resp2)] {
            let took = hand_over(cluster, &key, from, to).await;
            assert!(took < Duration::from_secs(3), "{key}: {took:?}");
        }
    }
}

/// The lock is deleted directly, so no release follows.
#[tokio::test]
async fn a_lock_that_goes_without_a_release_has_its_next_holder_soon() {
    let cluster = shared().await;
    for key in keys(cluster, "gone").await {
        let (holder, waiter) = (client(cluster).await, client(cluster).await);
        let guard = hold(&holder, &key).await;
        let waiting = acquiring(waiter.lock(&key).lease(LASTING).wait(LONG));
        assert_soon_queued(cluster, &key, 1).await;
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
