//! Slots with locks that move between masters.

use futures_util::future::{join_all, try_join_all};
use rlock_core::{Lock, LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisCluster, eventually, within};
use tokio::sync::Mutex;

use super::{assert_soon_clear, assert_soon_free, assert_soon_queued, client};
use crate::{
    common::{
        LASTING, LONG, acquiring, assert_passed_on, assert_soon_counted, assert_unavailable,
        connect, connect_with, fence, hold, its_turn, ms, name, resp2,
    },
    topologies::{RENEWED, assert_soon_extended},
};

/// Returns a cluster whose slots the test may move, and a key at the first master.
async fn cluster_and_key() -> (RedisCluster, String, u16) {
    let cluster = RedisCluster::start().await;
    let key = cluster.key_at(0, "k").await;
    let slot = cluster.slot_of(&name(&key)).await;
    (cluster, key, slot)
}

/// Asserts that no call gets the lock, and waits until an error contains all parts. One call may not be enough, because a
/// node of a busy machine may reply too late to be in the error.
async fn assert_soon_says(lock: &Lock, parts: &[&str]) -> String {
    let (lock, mut said) = (lock.clone().wait(ms(900)), String::new());
    eventually(LONG, "the error says why", async || {
        said = assert_unavailable(lock.acquire().await, "the slot moves");
        parts.iter().all(|part| said.contains(part))
    })
    .await;
    said
}

#[tokio::test]
async fn a_lock_whose_slot_has_moved_is_kept_and_its_waiters_are_notified() {
    let (cluster, key, slot) = cluster_and_key().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let lock = one.lock(&key).lease(RENEWED).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
    assert_soon_queued(&cluster, &key, 1).await;
    cluster.move_slot(slot, 0, 1).await;
    assert_soon_extended(&guard).await;
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(cluster.node(1), &guard, 2).await;
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
    assert_soon_clear(&cluster, &key).await;
}

#[tokio::test]
async fn a_lock_is_renewed_and_released_wherever_its_keys_are_while_its_slot_moves() {
    let (cluster, _, _) = cluster_and_key().await;
    let client = client(&cluster).await;
    // A release must not wait for the ends of all moves, one after another.
    let ends = Mutex::new(());
    let parts = [
        ("fence", &[":fence"][..]),
        ("lock", &[""]),
        ("both", &["", ":fence"]),
    ];
    join_all(parts.map(async |(begins, moved)| {
        let key = cluster.key_at(0, begins).await;
        let slot = cluster.slot_of(&name(&key)).await;
        let lock = client.lock(&key).lease(RENEWED).wait(LONG);
        let guard = lock.acquire().await.expect("free");
        cluster.begin_to_move(slot, 0, 1).await;
        for suffix in moved {
            let key = format!("{}{suffix}", name(&key));
            cluster.move_key(&key, 0, 1).await;
        }
        assert_soon_extended(&guard).await;
        let _alone = ends.lock().await;
        let release = tokio::spawn(guard.release());
        tokio::time::sleep(ms(300)).await;
        cluster.end_to_move(slot, 0, 1).await;
        let released = within(LONG, "it is released", release).await;
        released.expect("no panic").expect("held");
        assert_soon_free(&cluster, &key).await;
    }))
    .await;
}

/// The new master must not restart the tokens before the old fence arrives.
#[tokio::test]
async fn a_free_lock_is_not_given_by_the_new_master_before_its_token_is_there() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    let lock = client.lock(&key).lease(LASTING).wait(LONG);
    let before = lock.acquire().await.expect("free");
    let token = before.token();
    before.release().await.expect("held");
    cluster.begin_to_move(slot, 0, 1).await;
    assert_soon_says(&lock, &["on its way"]).await;
    let waiting = acquiring(lock);
    // Once all keys have moved, the slot itself need not have.
    let fence = fence(&key);
    cluster.move_key(&fence, 0, 1).await;
    let guard = its_turn(waiting).await;
    assert!(guard.token() > token);
    cluster.end_to_move(slot, 0, 1).await;
    guard.release().await.expect("held");
}

#[distributed_lock(key = ["{<tag>}a", "{<tag>}b"], wait = "0s", client = client)]
async fn both_now(client: &LockClient, tag: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// Only an operator knows that a move was abandoned.
#[tokio::test]
async fn where_a_move_was_given_up_the_error_names_the_slot_and_the_nodes_and_the_way_out() {
    let (cluster, key, slot) = cluster_and_key().await;
    let (client, other) = (client(&cluster).await, client(&cluster).await);
    let [from, to] = [0, 1].map(|n| cluster.node(n).address());
    let lock = client.lock(&key).wait(LONG);
    let before = lock.acquire().await.expect("free");
    let token = before.token();
    before.release().await.expect("held");
    let same_slot = hold(&other, &format!("{{{key}}}a")).await;
    cluster.begin_to_move(slot, 0, 1).await;
    let (of_slot, fix) = (
        format!("slot {slot} "),
        format!("`redis-cli --cluster fix {from}`"),
    );
    let stable = format!("`CLUSTER SETSLOT {slot} STABLE`");
    let advice = [&*of_slot, &from, &fix, &stable];
    let with_both = [&advice[..], &[&to]].concat();
    assert_soon_says(&lock, &with_both).await;
    // Another owner holds the first of the two locks, so its keys are still there.
    eventually(LONG, "the error of several keys says it, too", async || {
        let said = assert_unavailable(both_now(&client, &key).await, "it is taken");
        advice.iter().all(|part| said.contains(part))
    })
    .await;
    // Only the new master abandons the move.
    let set = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
    let () = cluster.node(1).command(&set).await;
    let never_taken = client.lock(format!("{{{key}}}new")).wait(LONG);
    assert_soon_says(&never_taken, &with_both).await;
    // This repairs the slot.
    let () = cluster.node(0).command(&set).await;
    for lock in [lock, never_taken] {
        let guard = lock.acquire().await.expect("free");
        assert!(guard.token() > token);
        guard.release().await.expect("held");
    }
    same_slot.release().await.expect("held");
}

/// Moves that end at the same time may leave this behind, and only an operator ends it.
#[tokio::test]
async fn an_acquire_waits_while_two_nodes_name_each_other_as_the_owner_of_a_slot() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    let number = slot.to_string();
    let target: String = cluster.node(1).command(&["CLUSTER", "MYID"]).await;
    let end = ["CLUSTER", "SETSLOT", &number, "NODE", &target];
    let () = cluster.node(0).command(&end).await;
    let lock = client.lock(&key).lease(LASTING).wait(LONG);
    let waiting = acquiring(lock.clone());
    assert_soon_says(&lock, &["do not agree", &number]).await;
    let () = cluster.node(1).command(&end).await;
    its_turn(waiting).await.release().await.expect("held");
}

/// Each call is redirected to the new master, which does not own the slot yet.
#[tokio::test]
async fn locks_that_were_never_taken_are_given_by_the_new_master_at_once() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    cluster.begin_to_move(slot, 0, 2).await;
    let guard = hold(&client, &key).await;
    assert!(cluster.keys_in(slot, 2).await.contains(&name(&key)));
    let info = client.inspect(&key).await.expect("a reply");
    assert_eq!(info.expect("held").token(), Some(guard.token()));
    let locks = (0..32).map(|n| client.lock(format!("{{{key}}}:{n}")));
    let attempts = locks.map(async |lock| lock.try_acquire().await);
    for attempt in join_all(attempts).await {
        let guard = attempt.expect("a reply").expect("free");
        guard.release().await.expect("held");
    }
    guard.release().await.expect("held");
    cluster.end_to_move(slot, 0, 2).await;
    assert_soon_clear(&cluster, &key).await;
}

#[tokio::test]
async fn locks_of_one_slot_are_renewed_while_they_lie_at_two_masters() {
    let (cluster, tag, slot) = cluster_and_key().await;
    let next = cluster.replica_of(1);
    next.config_set("cluster-replica-no-failover", "yes").await;
    // Without invalidations for moved keys, so that all locks are renewed together.
    let client = connect(&resp2(&cluster.url())).await;
    // The locks are acquired together, so their renewals are due together.
    let calls = (0..6).map(|n| {
        let lock = client.lock(format!("{{{tag}}}:{n}")).lease(RENEWED);
        async move { lock.acquire().await }
    });
    let mut guards = try_join_all(calls).await.expect("all are free");
    cluster.begin_to_move(slot, 0, 1).await;
    for n in 0..3 {
        let moved = format!("lock:{{{tag}}}:{n}}}");
        cluster.move_key(&moved, 0, 1).await;
    }
    join_all(guards.iter().map(assert_soon_extended)).await;
    // Renewals of locks that have not moved do not wait for those of the others.
    cluster.node(1).pause();
    let stay = guards.split_off(3);
    join_all(stay.iter().map(assert_soon_extended)).await;
    cluster.node(1).resume();
    for guard in stay {
        guard.release().await.expect("held");
    }
}

/// While the keys of a lock lie at two masters, no script can change its holders.
#[tokio::test]
async fn readers_keep_a_writer_out_wherever_the_keys_of_their_lock_are() {
    let (cluster, _, _) = cluster_and_key().await;
    let one = client(&cluster).await;
    // Its calls end before the reader's lease does, even if no reply comes.
    let other = connect_with(ms(3_000), &cluster.url()).await;
    let ends = Mutex::new(());
    let parts = [
        ("nothing", &[][..]),
        ("holders", &[":shared"]),
        ("lock", &["", ":fence"]),
        ("lock and holders", &["", ":shared"]),
    ];
    join_all(parts.map(async |(begins, moved)| {
        let key = cluster.key_at(0, begins).await;
        let slot = cluster.slot_of(&name(&key)).await;
        let reader = one.lock(&key).shared().lease(RENEWED).wait(LONG);
        let reader = reader.acquire().await.expect("free");
        cluster.begin_to_move(slot, 0, 1).await;
        for suffix in moved {
            let key = format!("{}{suffix}", name(&key));
            cluster.move_key(&key, 0, 1).await;
        }
        // It may wait for the end of the move. It must not end the hold of the first.
        let second = other.lock(&key).shared().wait(ms(2_000)).acquire().await;
        let writer = other.lock(&key).wait(ms(2_000)).acquire().await;
        assert!(writer.is_err(), "{begins}: {writer:?}");
        drop(second);
        let waiting = acquiring(other.lock(&key).wait(LONG));
        {
            let _alone = ends.lock().await;
            cluster.end_to_move(slot, 0, 1).await;
        }
        assert_soon_extended(&reader).await;
        assert_passed_on(reader, waiting).await;
    }))
    .await;
}

#[tokio::test]
async fn the_last_reader_frees_its_lock_although_a_move_has_begun() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    // The lease is longer than the test waits, so only the release can free the lock.
    let reader = client.lock(&key).shared().lease(LONG * 3).wait(LONG);
    let reader = reader.acquire().await.expect("free");
    cluster.begin_to_move(slot, 0, 1).await;
    reader.release().await.expect("held");
    cluster.end_to_move(slot, 0, 1).await;
    assert_soon_free(&cluster, &key).await;
}
