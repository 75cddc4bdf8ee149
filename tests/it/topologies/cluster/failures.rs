//! Masters that die, are paused, or are replaced on purpose.

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockError, LostCause};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer};

use super::{assert_soon_free, assert_soon_queued, client, keys};
use crate::{
    common::{
        LASTING, LONG, acquiring, assert_lost, assert_passed_on, assert_soon_counted, builder,
        connect, connect_with, count, hold, its_turn, leave_behind, ms, name,
    },
    topologies::{FAILOVER_LEASE, RENEWED, assert_soon_extended, hold_renewed},
};

/// The client knows no address but that of the master that dies.
#[tokio::test]
async fn holders_and_waiters_follow_a_failover() {
    let cluster = RedisCluster::start().await;
    let url = format!("redis-cluster://{}", cluster.node(0).address());
    let (one, other) = (connect(&url).await, client(&cluster).await);
    let key = cluster.key_at(0, "k").await;
    let lock = one.lock(&key).lease(FAILOVER_LEASE).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(cluster.node(0), &guard, 2).await;
    let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG * 3));
    assert_soon_queued(&cluster, &key, 1).await;
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.silence(ms(1000)).await;
    cluster.node(0).kill();
    cluster.failed_over(0).await;
    assert_soon_extended(&guard).await;
    assert_eq!(count(cluster.replica_of(0), &guard).await, Some(2));
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
}

#[tokio::test]
async fn a_hold_follows_a_failover_from_a_paused_master_without_other_requests() {
    let cluster = RedisCluster::start().await;
    let client = connect_with(ms(2000), &cluster.url()).await;
    let key = cluster.key_at(0, "k").await;
    let guard = hold_renewed(&client, &key).await;
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.silence(ms(1000)).await;
    cluster.node(0).pause();
    cluster.failed_over(0).await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn holders_and_waiters_follow_a_failover_on_purpose() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(1, "k").await;
    let guard = hold_renewed(&one, &key).await;
    let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG * 3));
    assert_soon_queued(&cluster, &key, 1).await;
    // After a failed vote, a replica tries again after a multiple of this time.
    cluster.silence(ms(1000)).await;
    // The replica gives a failover up after five seconds if the other masters have not voted by then.
    let attempts = async {
        let mut replica = cluster.replica_of(1).connection().await;
        loop {
            let mut failover = redis::cmd("CLUSTER");
            let attempt: Result<(), _> = failover.arg("FAILOVER").query_async(&mut replica).await;
            drop(attempt);
            tokio::time::sleep(ms(10_000)).await;
        }
    };
    tokio::select! {
        () = cluster.failed_over(1) => {}
        () = attempts => {}
    }
    assert_soon_extended(&guard).await;
    assert_passed_on(guard, waiting).await;
    assert_soon_free(&cluster, &key).await;
}

#[tokio::test]
async fn a_lock_that_had_not_reached_the_replica_is_lost_and_its_holder_knows() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(2, "k").await;
    hold(&one, &key).await.release().await.expect("held");
    let (master, replica) = (cluster.node(2), cluster.replica_of(2));
    cluster.silence(ms(1000)).await;
    leave_behind(replica, master).await;
    // The lease does not end before the client finds the new master.
    let guard = one.lock(&key).lease(LONG * 3).acquire().await;
    let guard = guard.expect("free");
    master.kill();
    replica.resume();
    cluster.failed_over(2).await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    let next = other.lock(&key).lease(LASTING).wait(LONG).acquire().await;
    let next = next.expect("free");
    assert!(next.token() > guard.token());
    next.release().await.expect("held");
}

#[tokio::test]
async fn a_paused_master_delays_only_its_own_slots() {
    let cluster = RedisCluster::start().await;
    // No replica replaces it.
    cluster
        .replica_of(1)
        .config_set("cluster-replica-no-failover", "yes")
        .await;
    let client = connect_with(ms(2000), &cluster.url()).await;
    let keys = keys(&cluster, "k").await;
    let lease = |key: &str| client.lock(key).lease(RENEWED).wait(LONG);
    // The locks are acquired together, so their renewals are due together.
    let calls = (0..30).map(|n| {
        let lock = lease(&format!("held-{n}"));
        async move { lock.acquire().await }
    });
    let held = try_join_all(calls).await.expect("all are free");
    let paused = cluster.node(1);
    let mut elsewhere = Vec::new();
    for guard in &held {
        if cluster.owner_of(&name(guard.key())).await.port() != paused.port() {
            elsewhere.push(guard);
        }
    }
    assert!((10..30).contains(&elsewhere.len()), "{}", elsewhere.len());
    // The other nodes soon tell clients that it has failed.
    cluster.silence(ms(1000)).await;
    paused.pause();
    let blocked = acquiring(lease(&keys[1]));
    for master in [0, 2] {
        let guard = lease(&keys[master]).acquire().await.expect("free");
        guard.release().await.expect("held");
    }
    join_all(elsewhere.into_iter().map(assert_soon_extended)).await;
    paused.resume();
    let guard = its_turn(blocked).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_failover_is_noticed_if_every_node_replies_slowly() {
    let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
    let client = client(&cluster).await;
    let key = cluster.key_at(0, "k").await;
    hold(&client, &key).await.release().await.expect("held");
    cluster.silence(ms(1000)).await;
    for n in 0..2 * MASTERS {
        cluster.node(n).front().delay_replies(ms(400));
    }
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.node(0).kill();
    cluster.failed_over(0).await;
    let lock = client.lock(&key).lease(LASTING).wait(LONG * 2);
    let guard = lock.acquire().await.expect("free at the new master");
    assert_eq!(count(cluster.replica_of(0), &guard).await, Some(1));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_counts_as_taken_when_a_replica_of_its_master_has_it() {
    let cluster = RedisCluster::start().await;
    let careful = async |within| {
        let builder = builder().wait_for_replicas(1, within);
        builder.connect(&cluster.url()).await.expect("it is there")
    };
    let client = careful(LONG).await;
    for (master, key) in keys(&cluster, "k").await.iter().enumerate() {
        let guard = hold(&client, key).await;
        let there = cluster.replica_of(master).keys(&name(key)).await;
        assert_eq!(there.len(), 1, "{key}");
        guard.release().await.expect("held");
    }
    // The new master of the slot has its own replica.
    let key = cluster.key_at(0, "moved").await;
    let slot = cluster.slot_of(&name(&key)).await;
    cluster.move_slot(slot, 0, 1).await;
    let guard = hold(&client, &key).await;
    assert_eq!(cluster.replica_of(1).keys(&name(&key)).await.len(), 1);
    guard.release().await.expect("held");

    cluster.replica_of(2).kill();
    let key = &keys(&cluster, "k").await[2];
    let refused = careful(ms(300)).await.lock(key).acquire().await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_soon_free(&cluster, key).await;
}
