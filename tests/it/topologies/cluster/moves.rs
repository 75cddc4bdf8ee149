//! Slots with locks that move between masters.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LostCause, distributed_lock};
use rlock_testkit::{RedisCluster, eventually, within};
use tokio::sync::Mutex;

use super::{
    assert_soon_free, assert_soon_only_fences, assert_soon_queued, client, contend,
    is_since_redis_7,
};
use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_passed_on, connect, hold, its_turn, ms, name,
    resp2, timed,
};

const LEASE: Duration = Duration::from_secs(3);

/// Returns a cluster whose slots the test may move, and a key at the first master.
async fn cluster_and_key() -> (RedisCluster, String, u16) {
    let cluster = RedisCluster::start().await;
    let key = cluster.key_at(0, "k").await;
    let slot = cluster.slot_of(&name(&key)).await;
    (cluster, key, slot)
}

#[tokio::test]
async fn a_lock_whose_slot_has_moved_is_kept_and_its_waiters_are_notified() {
    let (cluster, key, slot) = cluster_and_key().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let lock = one.lock(&key).lease(LEASE);
    let guard = lock.acquire().await.expect("free");
    let waiting = acquiring(other.lock(&key).wait(LONG));
    assert_soon_queued(&cluster, &key, 1).await;
    cluster.move_slot(slot, 0, 1).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_valid(), "renewed where it is now");
    assert!(!waiting.is_finished());
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
    assert_soon_only_fences(&cluster, &key).await;
}

#[tokio::test]
async fn a_lock_is_renewed_entered_and_released_wherever_its_keys_are_while_its_slot_moves() {
    let (cluster, _, _) = cluster_and_key().await;
    let client = client(&cluster).await;
    // A release must not wait for the ends of all moves, one after another.
    let ends = Mutex::new(());
    let parts = [
        ("nothing", &[][..]),
        ("fence", &[":fence"]),
        ("lock", &[""]),
        ("both", &["", ":fence"]),
    ];
    let moves = [(0, 1), (1, 0)].map(|way| parts.map(|part| (way, part)));
    let moves = moves.concat().into_iter();
    let moves = moves.map(async |((from, to), (begins, moved))| {
        let key = cluster.key_at(from, begins).await;
        let slot = cluster.slot_of(&name(&key)).await;
        let lock = client.lock(&key).lease(LEASE);
        let guard = lock.acquire().await.expect("free");
        cluster.begin_to_move(slot, from, to).await;
        for suffix in moved {
            let key = format!("{}{suffix}", name(&key));
            cluster.move_key(&key, from, to).await;
        }
        tokio::time::sleep(LEASE * 2).await;
        assert!(guard.is_valid(), "{moved:?}: renewed");
        let _alone = ends.lock().await;
        let release = tokio::spawn(guard.release());
        tokio::time::sleep(ms(300)).await;
        cluster.end_to_move(slot, from, to).await;
        let released = within(LONG, "it is released", release).await;
        released.expect("no panic").expect("held");
        assert_soon_free(&cluster, &key).await;
    });
    join_all(moves).await;
}

/// The new master must not restart the tokens before the old fence arrives.
#[tokio::test]
async fn a_free_lock_is_not_given_by_the_new_master_before_its_token_is_there() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    let before = client.lock(&key).acquire().await.expect("free");
    let token = before.fencing_token();
    before.release().await.expect("held");
    cluster.begin_to_move(slot, 0, 1).await;
    let soon = client.lock(&key).wait(ms(700)).acquire().await;
    let Err(LockError::Unavailable { source, .. }) = soon else {
        panic!("{soon:?}");
    };
    assert!(source.to_string().contains("on its way"), "{source}");
    let waiting = acquiring(client.lock(&key).lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    // Once all keys have moved, the slot itself need not have.
    let fence = format!("{}:fence", name(&key));
    cluster.move_key(&fence, 0, 1).await;
    let guard = within(LONG, "it is there", waiting)
        .await
        .expect("no panic");
    let guard = guard.expect("free");
    // Tokens continue, or restart at the current time.
    assert!(guard.fencing_token() >= token + 3);
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
    let builder = LockClient::builder().default_wait(ms(900));
    let client = builder.connect(&cluster.url()).await.expect("it is there");
    let other = connect(&cluster.url()).await;
    let [from, to] = [0, 1].map(|n| cluster.node(n).address());
    let before = client.lock(&key).wait(LONG).acquire().await.expect("free");
    let token = before.fencing_token();
    before.release().await.expect("held");
    let beside = other.lock(format!("{{{key}}}a")).lease(LASTING);
    let beside = beside.acquire().await.expect("free");
    cluster.begin_to_move(slot, 0, 1).await;
    let advice = [
        &format!("slot {slot} "),
        &from,
        &format!("`redis-cli --cluster fix {from}`"),
        &format!("`CLUSTER SETSLOT {slot} STABLE`"),
    ];
    let free = client.lock(&key).acquire().await.map(drop);
    let new = format!("{{{key}}}new");
    // Another owner holds the first of the two locks, so its keys are still there.
    let several = both_now(&client, &key).await;
    // Only the new master abandons the move.
    let stable = ["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"];
    let () = cluster.node(1).command(&stable).await;
    let never_taken = client.lock(&new).acquire().await.map(drop);
    // Before Redis 7 a node also redirects a client that asks for several keys.
    let sends_on = !is_since_redis_7(cluster.node(0)).await;
    for (outcome, names_both) in [(free, true), (several, sends_on), (never_taken, true)] {
        let error = outcome.expect_err("it cannot come into being");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        let said = error.to_string();
        assert!(advice.iter().all(|part| said.contains(*part)), "{said}");
        assert_eq!(said.contains(&to), names_both, "{said}");
    }
    // This repairs the slot.
    let () = cluster.node(0).command(&stable).await;
    for key in [&key, &new] {
        let guard = client.lock(key).wait(LONG).acquire().await.expect("free");
        assert!(guard.fencing_token() > token);
        guard.release().await.expect("held");
    }
    beside.release().await.expect("held");
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
    let outcome = client.lock(&key).wait(ms(900)).acquire().await.map(drop);
    let error = outcome.expect_err("no node has the slot");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("do not agree") && said.contains(&number),
        "{said}"
    );
    let waiting = acquiring(client.lock(&key).lease(LASTING).wait(LONG));
    // Longer than a request may take.
    tokio::time::sleep(LEASE).await;
    assert!(!waiting.is_finished());
    let () = cluster.node(1).command(&end).await;
    its_turn(waiting).await.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_that_was_never_taken_is_given_by_the_new_master_at_once() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    cluster.begin_to_move(slot, 0, 2).await;
    let guard = hold(&client, &key).await;
    assert!(cluster.keys_in(slot, 2).await.contains(&name(&key)));
    let info = client.inspect(&key).await.expect("a reply");
    assert_eq!(info.expect("held").token, Some(guard.fencing_token()));
    guard.release().await.expect("held");
    cluster.end_to_move(slot, 0, 2).await;
    assert_soon_only_fences(&cluster, &key).await;
}

/// Each is redirected, and all ask the new master for its time at most once more.
#[tokio::test]
async fn attempts_for_many_locks_of_a_moving_slot_succeed_at_the_same_time() {
    let (cluster, key, slot) = cluster_and_key().await;
    let client = client(&cluster).await;
    cluster.begin_to_move(slot, 0, 1).await;
    for round in 0..4 {
        let locks = (0..32).map(|n| client.lock(format!("{{{key}}}:{round}:{n}")));
        let attempts = locks.map(async |lock| lock.try_acquire().await);
        for attempt in join_all(attempts).await {
            let guard = attempt.expect("a reply").expect("free");
            guard.release().await.expect("held");
        }
    }
    cluster.end_to_move(slot, 0, 1).await;
}

#[tokio::test]
async fn locks_of_one_slot_are_renewed_while_they_lie_at_two_masters() {
    let (cluster, _, _) = cluster_and_key().await;
    // Without invalidations for moved keys, so that all locks are renewed together.
    let client = connect(&resp2(&cluster.url())).await;
    let slot = cluster.slot_of("{tag}").await;
    let from = cluster.owner_of("{tag}").await.port();
    let from = (0..3)
        .find(|n| cluster.node(*n).port() == from)
        .expect("a master");
    let to = (from + 1) % 3;
    let mut guards = Vec::new();
    for n in 0..6 {
        let lock = client.lock(format!("{{tag}}:{n}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("free"));
    }
    cluster.begin_to_move(slot, from, to).await;
    for n in 0..3 {
        cluster
            .move_key(&format!("lock:{{tag}}:{n}}}"), from, to)
            .await;
    }
    tokio::time::sleep(LEASE * 2).await;
    for guard in &guards {
        assert!(guard.is_valid(), "{}", guard.key());
    }
    cluster.end_to_move(slot, from, to).await;
    for guard in guards {
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn slots_that_move_in_both_directions_under_load_break_nothing() {
    const MOVES: usize = 12;
    let cluster = RedisCluster::start().await;
    let ways = [[0, 1, 2], [1, 0, 2]].map(async |way| {
        let key = cluster.key_at(way[0], "k").await;
        let slot = cluster.slot_of(&name(&key)).await;
        let moves = async {
            for n in 0..MOVES {
                let (from, to) = (way[n % 3], way[(n + 1) % 3]);
                cluster.begin_to_move(slot, from, to).await;
                tokio::time::sleep(ms(150)).await;
                // A key that exists at both nodes is an error here.
                cluster.end_to_move(slot, from, to).await;
                tokio::time::sleep(ms(250)).await;
            }
        };
        contend(&cluster, &key, 60, moves).await;
        eventually(LONG, "the cluster has settled", async || {
            cluster.keys_in(slot, way[0]).await.len() == 1
        })
        .await;
    });
    join_all(ways).await;
}

#[tokio::test]
async fn locks_that_have_not_moved_yet_are_renewed_though_the_next_master_is_paused() {
    let (cluster, tag, slot) = cluster_and_key().await;
    cluster
        .replica_of(1)
        .config_set("cluster-replica-no-failover", "yes")
        .await;
    // Without invalidations, which would separate the renewals of the moved lock.
    let client = connect(&resp2(&cluster.url())).await;
    let lock = |which| client.lock(format!("{{{tag}}}{which}")).lease(LEASE);
    let stays = lock("stays").acquire().await.expect("free");
    let moves = lock("moves").acquire().await.expect("free");
    // The client checks both after it reconnects, and then renews them together.
    assert!(cluster.node(0).kill_clients("normal").await > 0);
    tokio::time::sleep(ms(500)).await;
    cluster.begin_to_move(slot, 0, 1).await;
    for suffix in ["", ":fence"] {
        let key = format!("lock:{{{tag}}}moves}}{suffix}");
        cluster.move_key(&key, 0, 1).await;
    }
    // Each is renewed at its own node.
    tokio::time::sleep(LEASE).await;
    assert!(stays.is_valid() && moves.is_valid());
    cluster.node(1).pause();
    assert_lost(&moves, LONG, LostCause::Expired).await;
    tokio::time::sleep(LEASE).await;
    assert!(stays.is_valid(), "its master answers");
    cluster.node(1).resume();
}

/// The node that exports a slot creates no wait queue, so the release hands nothing off.
#[tokio::test]
async fn a_waiter_that_comes_while_the_slot_moves_has_the_lock_soon_after_its_release() {
    let (cluster, key, slot) = cluster_and_key().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let guard = hold(&one, &key).await;
    cluster.begin_to_move(slot, 0, 1).await;
    let fence = format!("{}:fence", name(&key));
    cluster.move_key(&fence, 0, 1).await;
    let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(1000)).await;
    assert!(!waiting.is_finished(), "it is held");
    guard.release().await.expect("held");
    let (next, took) = timed(its_turn(waiting)).await;
    // By its timer the waiter would only retry after five seconds.
    assert!(took < ms(2500), "{took:?}");
    next.release().await.expect("held");
    cluster.end_to_move(slot, 0, 1).await;
}

/// While the keys of a lock lie at two masters, no script can change its holders.
#[tokio::test]
async fn readers_keep_a_writer_out_wherever_the_keys_of_their_lock_are() {
    let (cluster, _, _) = cluster_and_key().await;
    let clients = [client(&cluster).await, client(&cluster).await];
    let ends = Mutex::new(());
    let parts = [
        ("nothing", &[][..]),
        ("holders", &[":shared"]),
        ("lock", &["", ":fence"]),
        ("lock and holders", &["", ":shared"]),
    ];
    join_all(parts.map(async |(begins, moved)| {
        let [one, other] = &clients;
        let key = cluster.key_at(0, begins).await;
        let slot = cluster.slot_of(&name(&key)).await;
        let reader = one.lock(&key).shared().lease(LEASE * 2);
        let reader = reader.acquire().await.expect("free");
        cluster.begin_to_move(slot, 0, 1).await;
        for suffix in moved {
            let key = format!("{}{suffix}", name(&key));
            cluster.move_key(&key, 0, 1).await;
        }
        // It may wait for the end of the move. It must not end the hold of the first.
        let second = other.lock(&key).shared().wait(ms(500)).acquire().await;
        let writer = other.lock(&key).wait(ms(500)).acquire().await;
        assert!(writer.is_err(), "{begins}: {writer:?}");
        assert!(reader.is_valid(), "{begins}");
        drop(second);
        let waiting = acquiring(other.lock(&key).wait(LONG));
        {
            let _alone = ends.lock().await;
            cluster.end_to_move(slot, 0, 1).await;
        }
        tokio::time::sleep(LEASE).await;
        reader.release().await.expect("renewed where it is now");
        let (writer, took) = timed(its_turn(waiting)).await;
        assert!(took < ms(1_500), "{begins}: {took:?}");
        writer.release().await.expect("held");
    }))
    .await;
}

#[tokio::test]
async fn the_last_reader_frees_its_lock_although_a_move_has_begun() {
    let (cluster, key, slot) = cluster_and_key().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let guard = one.lock(&key).shared().lease(LASTING).acquire().await;
    cluster.begin_to_move(slot, 0, 1).await;
    guard.expect("free").release().await.expect("held");
    cluster.end_to_move(slot, 0, 1).await;
    let (writer, took) = timed(other.lock(&key).wait(LONG).acquire()).await;
    writer.expect("free").release().await.expect("held");
    assert!(took < ms(3_000), "{took:?}");
}
