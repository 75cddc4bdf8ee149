//! Notifications of waiters, and the nodes that send them.

use std::collections::BTreeSet;

use rlock_testkit::{MASTERS, RedisCluster, eventually};

use super::{assert_soon_queued, client, keys, shared};
use crate::common::{
    LASTING, LONG, acquiring, connect, its_turn,
    recorder::{keep_metrics, metric},
    resp2,
};

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
async fn clients_of_both_protocols_are_notified_of_their_turns_by_each_master() {
    const LOCK: &str = "told-in-a-cluster";
    keep_metrics();
    let cluster = shared().await;
    let by_resp2 = connect(&resp2(&cluster.url())).await;
    let by_resp3 = client(cluster).await;
    for key in keys(cluster, "told").await {
        for (from, to) in [(&by_resp2, &by_resp3), (&by_resp3, &by_resp2)] {
            let guard = from.lock(&key).lease(LASTING).wait(LONG).acquire().await;
            let guard = guard.expect("free");
            let waiting = to.lock(&key).label(LOCK).lease(LASTING).wait(LONG);
            let waiting = acquiring(waiting);
            assert_soon_queued(cluster, &key, 1).await;
            guard.release().await.expect("held");
            its_turn(waiting).await.release().await.expect("held");
        }
    }
    let by = |way| metric("rlock_arrivals_total", &[("lock", LOCK), ("by", way)]).unwrap_or(0.0);
    assert!(by("message") > 0.0, "{} by the timer", by("timer"));
}
