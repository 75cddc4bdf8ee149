//! Permissions at the nodes of a cluster, beyond those at one server. `docs/security.md` lists
//! them.

use std::collections::BTreeSet;

use rlock_core::LockClient;
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, eventually};

use super::{assert_soon_queued, keys};
use crate::{
    common::{
        LASTING, LONG, acl, acquiring, assert_passed_on, assert_refused, assert_soon_counted,
        assert_unavailable, builder, connect,
        log::{keep_log, logged_with},
        ms, name,
    },
    topologies::{RENEWED, assert_soon_extended},
};

/// Returns the permissions of a user without one of them.
fn rules_without(left_out: &[&str]) -> String {
    let rules = format!("{} {}", acl::of_a_server(), acl::beyond("Redis Cluster"));
    let given = rules.split(' ').filter(|rule| !left_out.contains(rule));
    acl::only(&given.collect::<Vec<_>>())
}

async fn cluster_without(left_out: &[&str]) -> RedisCluster {
    let rules = rules_without(left_out);
    RedisCluster::of(&RedisServer::builder().acl_user("locker", &rules)).await
}

fn locker_url(cluster: &RedisCluster) -> String {
    let url = cluster.url();
    url.replace("redis-cluster://", "redis-cluster://locker:secret@")
}

async fn locker(cluster: &RedisCluster) -> LockClient {
    connect(&locker_url(cluster)).await
}

/// Returns the commands that any node has refused.
async fn refused(cluster: &RedisCluster) -> BTreeSet<String> {
    acl::refused_by((0..2 * MASTERS).map(|n| cluster.node(n))).await
}

/// Uses locks at each master: acquire, enter, hand over, release. The slot of the first one moves at the same time.
async fn use_locks(cluster: &RedisCluster) {
    let (one, other) = (locker(cluster).await, locker(cluster).await);
    for key in keys(cluster, "k").await {
        let lock = one.lock(&key).lease(LASTING).wait(LONG);
        let guard = lock.acquire().await.expect("free");
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        // An `inspect` would list the server's connections if the holder replied late, which takes another permission.
        let master = cluster.owner_of(&name(&key)).await;
        assert_soon_counted(master, &guard, 2).await;
        nested.release().await.expect("held");
        let next = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
        assert_soon_queued(cluster, &key, 1).await;
        assert_passed_on(guard, next).await;
    }
    let key = cluster.key_at(0, "moves").await;
    let slot = cluster.slot_of(&name(&key)).await;
    let lock = one.lock(&key).lease(RENEWED).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    cluster.begin_to_move(slot, 0, 1).await;
    cluster.move_key(&name(&key), 0, 1).await;
    assert_soon_extended(&guard).await;
    cluster.end_to_move(slot, 0, 1).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_permissions_of_a_server_and_some_more_are_enough_at_a_cluster() {
    let cluster = cluster_without(&[]).await;
    use_locks(&cluster).await;
    assert_eq!(refused(&cluster).await, BTreeSet::new());
}

/// Each node reports its own permissions when a client connects.
#[tokio::test]
async fn missing_permissions_in_a_cluster_are_reported_at_the_connection() {
    keep_log();
    let needed = ["+asking"];
    let better = ["+cluster|info"];
    let cluster = cluster_without(&[&needed[..], &better[..]].concat()).await;
    if !acl::can_be_reported(cluster.node(0)).await {
        return;
    }
    let client = locker(&cluster).await;
    // Waits for the connection to this node.
    let same_node = cluster.key_at(0, "same_node").await;
    client.inspect(&same_node).await.expect("permitted");
    let address = cluster.node(0).address();
    let said = |level: &str| {
        let lines = logged_with(&[&address, "lacks permissions", level]);
        assert!(!lines.is_empty(), "{level}");
        lines.concat()
    };
    for (level, rules) in [("ERROR", &needed[..]), ("WARN", &better[..])] {
        let said = said(level);
        for rule in rules {
            assert!(said.contains(&rule[1..]), "{rule}: {said}");
        }
        assert!(!said.contains("slots"), "{said}");
    }
    // A new key can only be created at the next master.
    let key = cluster.key_at(0, "never taken").await;
    let slot = cluster.slot_of(&name(&key)).await;
    cluster.begin_to_move(slot, 0, 1).await;
    let expected = BTreeSet::from(["asking", "cluster|info"].map(str::to_owned));
    eventually(LONG, "the node refuses the request", async || {
        let outcome = client.lock(&key).wait(ms(900)).acquire().await;
        assert_unavailable(outcome, "that node gets no request");
        refused(&cluster).await == expected
    })
    .await;
    cluster.end_to_move(slot, 0, 1).await;
    let guard = client.lock(&key).wait(LONG).acquire().await;
    guard
        .expect("it has arrived")
        .release()
        .await
        .expect("held");
}

#[tokio::test]
async fn a_user_who_may_not_read_the_slots_of_a_cluster_gets_an_error() {
    let cluster = cluster_without(&["+cluster|slots"]).await;
    let url = locker_url(&cluster);
    let said = assert_refused(builder().connect(&url).await, "refused");
    // Before Redis 7 the error does not name the subcommand.
    let is_named = said.contains("cluster|slots") || said.contains("'cluster' command");
    assert!(is_named, "{said}");
}
