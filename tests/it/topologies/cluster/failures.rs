//! Masters that die, are paused, or are replaced on purpose.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LostCause};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, eventually, within};

use super::{assert_soon_free, assert_soon_queued, client, contend, keys};
use crate::common::{
    FAILOVER_LEASE as LEASE, LASTING, LONG, acquiring, assert_lost, assert_passed_on,
    assert_soon_renewed, count, hold, leave_behind, ms, name, timed,
};

#[tokio::test]
async fn holders_and_waiters_follow_a_failover() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(0, "k").await;
    let lock = one.lock(&key).lease(LEASE);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    let waiting = acquiring(other.lock(&key).wait(LONG * 3));
    assert_soon_queued(&cluster, &key, 1).await;
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.node(0).kill();
    cluster.failed_over(0).await;
    assert_soon_renewed(LONG, cluster.replica_of(0), &key).await;
    assert!(guard.is_valid() && !waiting.is_finished());
    let info = other.inspect(&key).await.expect("a reply").expect("held");
    assert_eq!(info.count, 2);
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
}

#[tokio::test]
async fn releases_at_a_master_that_hangs_do_not_delay_those_at_others() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster).await;
    let key = cluster.key_at(1, "k").await;
    let guard = hold(&client, &key).await;
    let mut there = Vec::new();
    for n in 0..600 {
        let key = cluster.key_at(0, &format!("k{n}:")).await;
        let lock = client.lock(key).lease(LASTING);
        there.push(async move { lock.acquire().await.expect("free") });
    }
    let there = join_all(there).await;
    cluster.node(0).pause();
    cluster.replica_of(0).pause();
    drop(there);
    tokio::time::sleep(ms(50)).await;
    drop(guard);
    let (next, took) = timed(hold(&client, &key)).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(next);
    cluster.node(0).resume();
    cluster.replica_of(0).resume();
}

#[tokio::test]
async fn a_hold_follows_a_failover_from_a_paused_master_without_other_requests() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster).await;
    let key = cluster.key_at(0, "k").await;
    let guard = client.lock(&key).lease(LEASE).acquire().await;
    let guard = guard.expect("free");
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.node(0).pause();
    cluster.failed_over(0).await;
    assert_soon_renewed(LEASE, cluster.replica_of(0), &key).await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_failover_on_purpose_is_hardly_noticed() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(1, "k").await;
    let guard = one.lock(&key).lease(LEASE).acquire().await.expect("free");
    let waiting = acquiring(other.lock(&key).wait(LONG * 3));
    assert_soon_queued(&cluster, &key, 1).await;
    let () = cluster
        .replica_of(1)
        .command(&["CLUSTER", "FAILOVER"])
        .await;
    cluster.failed_over(1).await;
    assert_soon_renewed(LONG, cluster.replica_of(1), &key).await;
    assert!(guard.is_valid());
    assert_passed_on(guard, waiting).await;
    assert_soon_free(&cluster, &key).await;
}

#[tokio::test]
async fn a_lock_that_had_not_reached_the_replica_is_lost_and_its_holder_knows() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(2, "k").await;
    let before = one.lock(&key).acquire().await.expect("free");
    before.release().await.expect("held");
    let (master, replica) = (cluster.node(2), cluster.replica_of(2));
    leave_behind(replica, master).await;
    let guard = one.lock(&key).lease(LEASE).acquire().await.expect("free");
    master.kill();
    replica.resume();
    cluster.failed_over(2).await;
    assert_lost(&guard, LEASE, LostCause::Removed).await;
    let next = other.lock(&key).wait(LONG).acquire().await.expect("free");
    assert!(next.fencing_token() > guard.fencing_token());
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
    let client = client(&cluster).await;
    let keys = keys(&cluster, "k").await;
    let lease = Duration::from_secs(3);
    let mut held = Vec::new();
    for n in 0..30 {
        let lock = client.lock(format!("held-{n}")).lease(lease);
        held.push(lock.acquire().await.expect("free"));
    }
    let paused = cluster.node(1);
    paused.pause();
    let (mut slowest, mut valid) = (Duration::ZERO, 0);
    let until = Instant::now() + lease * 2;
    while Instant::now() < until {
        for master in [0, 2] {
            let started = Instant::now();
            let guard = client.lock(&keys[master]).wait(LONG).acquire().await;
            guard.expect("free").release().await.expect("held");
            slowest = slowest.max(started.elapsed());
        }
        tokio::time::sleep(ms(20)).await;
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    for guard in &held {
        let elsewhere = cluster.owner_of(&name(guard.key())).await.port() != paused.port();
        if elsewhere {
            assert!(guard.is_valid(), "{} was renewed", guard.key());
            valid += 1;
        } else {
            assert_lost(guard, LONG, LostCause::Expired).await;
        }
    }
    assert!(valid > 10 && valid < 30, "{valid} of 30 lie elsewhere");
    paused.resume();
    let guard = client.lock(&keys[1]).lease(LASTING).wait(LONG);
    let guard = guard.acquire().await.expect("it is back");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_client_continues_when_every_configured_node_is_gone() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster).await;
    let keys = keys(&cluster, "k").await;
    for master in 0..2 {
        cluster
            .replica_of(master)
            .catch_up_with(cluster.node(master))
            .await;
        // One after the other, because a majority has to agree.
        cluster.node(master).kill();
        cluster.failed_over(master).await;
    }
    for key in &keys {
        let guard = client.lock(key).lease(LASTING).wait(LONG);
        let guard = within(LONG, key, guard.acquire()).await.expect("free");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_failover_is_noticed_if_every_node_replies_slowly() {
    let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
    let client = client(&cluster).await;
    let key = cluster.key_at(0, "k").await;
    hold(&client, &key).await.release().await.expect("held");
    for n in 0..2 * MASTERS {
        cluster.node(n).front().delay_replies(ms(400));
    }
    cluster.replica_of(0).catch_up_with(cluster.node(0)).await;
    cluster.node(0).kill();
    cluster.failed_over(0).await;
    let guard = client.lock(&key).wait(LONG * 2).acquire().await;
    let guard = guard.expect("free at the new master");
    assert_eq!(count(cluster.replica_of(0), &guard).await, Some(1));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_counts_as_taken_when_a_replica_of_its_master_has_it() {
    let cluster = RedisCluster::start().await;
    let client = LockClient::builder()
        .replicas(1, Duration::from_secs(5))
        .connect(&cluster.url())
        .await
        .expect("it is there");
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

    let impatient = LockClient::builder()
        .replicas(1, ms(300))
        .connect(&cluster.url())
        .await
        .expect("it is there");
    cluster.replica_of(2).kill();
    let keys = keys(&cluster, "k").await;
    let guard = impatient.lock(&keys[0]).acquire().await.expect("free");
    guard.release().await.expect("held");
    let refused = impatient.lock(&keys[2]).acquire().await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_soon_free(&cluster, &keys[2]).await;
}

/// The replica first receives all data of its master, so nothing is lost.
#[tokio::test]
async fn failovers_on_purpose_under_load_break_nothing() {
    let cluster = RedisCluster::start().await;
    let key = cluster.key_at(0, "k").await;
    let changes = async {
        for n in 0..4 {
            let next = [cluster.replica_of(0), cluster.node(0)][n % 2];
            // The next election has to be later than the votes of the previous one last.
            tokio::time::sleep(ms(2500)).await;
            let () = next.command(&["CLUSTER", "FAILOVER"]).await;
            eventually(LONG, "it is the master", async || {
                cluster.owner_of(&name(&key)).await.port() == next.port()
            })
            .await;
            cluster.settled().await;
        }
    };
    contend(&cluster, &key, 400, changes).await;
}
