//! A replica replaces its master behind the same address.

use std::time::{Duration, Instant};

use redis::{Client, Cmd, RedisResult, Value};
use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, cause_of, connect, count, hold, its_turn, ms, name,
};

/// A master, its replica, and a proxy that always leads to the master.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
    address: Proxy,
    client: LockClient,
    other: LockClient,
}

impl Pair {
    async fn new() -> Self {
        let (master, replica) = (RedisServer::start(), RedisServer::start());
        replica.follow(&master).await;
        let address = Proxy::in_front_of(&master);
        let client = connect(&address.url()).await;
        let other = connect(&address.url()).await;
        Self {
            master,
            replica,
            address,
            client,
            other,
        }
    }

    /// Cuts the replica off from all later writes.
    async fn cut_off_the_replica(&self) {
        let unreachable = RedisServer::start();
        unreachable.kill();
        self.replica.follow_in_vain(&unreachable).await;
    }

    /// Acquires the lock at the promoted replica, which knows no holder.
    async fn taken_at_the_new_master(&self) -> LockGuard {
        self.master.kill();
        self.fail_over().await;
        let lock = self.other.lock("k").lease(LASTING).wait(LONG);
        let next = lock.acquire().await;
        next.expect("the new master has no holder")
    }

    /// Promotes the replica, and leads the proxy to it.
    async fn fail_over(&self) {
        self.replica.promote().await;
        self.address.lead_to(&self.replica);
    }
}

#[tokio::test]
async fn a_lock_that_had_reached_the_replica_is_kept_through_a_failover() {
    let pair = Pair::new().await;
    let lock = pair.client.lock("k").lease(ms(3000));
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    pair.replica.catch_up_with(&pair.master).await;
    pair.master.kill();
    pair.fail_over().await;
    tokio::time::sleep(ms(5000)).await;
    assert!(guard.is_valid(), "renewed at the new master");
    assert_eq!(count(&pair.replica, &guard).await, Some(2));
    nested.release().await.expect("held");
    guard.release().await.expect("held");
    let next = pair.other.lock("k").acquire().await.expect("free");
    next.release().await.expect("held");
}

/// A single server cannot prevent this loss. The fencing token makes it safe.
#[tokio::test]
async fn a_lock_that_had_not_reached_the_replica_is_lost_and_the_token_shows_it() {
    let pair = Pair::new().await;
    // The replica misses the grant.
    pair.cut_off_the_replica().await;
    let guard = hold(&pair.client, "k").await;
    assert!(!pair.replica.exists(&name("k")).await);
    let next = pair.taken_at_the_new_master().await;
    assert!(next.fencing_token() > guard.fencing_token());
    // The notification comes long before the next renewal, in ten seconds.
    assert_lost(&guard, Duration::from_secs(8), LostCause::Removed).await;
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_eq!(count(&pair.replica, &next).await, Some(1));
    next.release().await.expect("held");
}

/// A demoted master still replies, but refuses writes. A client that stays there would not lock.
#[tokio::test]
async fn a_client_leaves_a_master_that_was_demoted() {
    let pair = Pair::new().await;
    let guard = pair.client.lock("k").lease(ms(3000)).acquire().await;
    let guard = guard.expect("free");
    pair.replica.catch_up_with(&pair.master).await;
    pair.fail_over().await;
    // Its connections stay open.
    pair.master.follow(&pair.replica).await;
    let waiting = pair.other.lock("other").lease(LASTING).wait(LONG);
    let taken = within(LONG, "it finds the new master", waiting.acquire()).await;
    let taken = taken.expect("free");
    assert_eq!(count(&pair.replica, &taken).await, Some(1));
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_valid(), "renewed at the new master");
    taken.release().await.expect("held");
    guard.release().await.expect("held");
    eventually(LONG, "the replica follows", async || {
        pair.master.keys("lock:{*}").await.is_empty()
    })
    .await;
}

/// A recently granted lock lasts longer than a short lease, so repeating the acquire would not
/// write.
#[tokio::test]
async fn a_demoted_master_confirms_no_lock_though_there_is_nothing_to_write() {
    const ACQUIRE: &str = concat!(
        include_str!("../../../rlock-core/src/store/redis/scripts/library.lua"),
        include_str!("../../../rlock-core/src/store/redis/scripts/acquire.lua")
    );
    const RENEW: &str = concat!(
        include_str!("../../../rlock-core/src/store/redis/scripts/library.lua"),
        include_str!("../../../rlock-core/src/store/redis/scripts/renew.lua")
    );
    const DAY: &str = "86400000";
    let server = RedisServer::start();
    let (lock, fence) = (name("k"), format!("{}:fence", name("k")));
    let _: u64 = server.command(&["HSET", &lock, "owner:1", "1"]).await;
    let _: u64 = server.command(&["PEXPIRE", &lock, "60000"]).await;
    let () = server.command(&["SET", &fence, "27500000000000"]).await;
    let asked = [
        "EVAL",
        ACQUIRE,
        "1",
        &lock,
        "300",
        "1",
        DAY,
        "0",
        "lock:client:",
        "first",
        "owner:1",
    ];
    let renewed = ["EVAL", RENEW, "1", &lock, "300", DAY, "owner:1", "0"];
    let answer: Vec<u64> = server.command(&asked).await;
    assert_eq!(answer, [1, 27_500_000_000_000]);
    assert!(server.pttl(&lock).await > 50_000, "it is not shortened");
    assert_eq!(server.command::<u64>(&renewed).await, 1);
    let _: u64 = server.command(&["PEXPIRE", &lock, "60000"]).await;
    let () = server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let connection = Client::open(server.url()).expect("a URL");
    let connection = connection.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("it is there");
    for request in [&asked[..], &renewed] {
        let answer: RedisResult<Value> = Cmd::new().arg(request).query_async(&mut connection).await;
        let error = answer.expect_err("it is a replica");
        assert!(error.to_string().contains("read only"), "{error}");
    }
}

#[tokio::test]
async fn a_waiter_at_the_old_master_has_its_turn_at_the_new_one() {
    let pair = Pair::new().await;
    let held = pair.client.lock("k").lease(ms(3000)).acquire().await;
    let held = held.expect("free");
    let waiting = acquiring(pair.other.lock("k").lease(LASTING).wait(LONG * 2));
    crate::common::assert_soon_queued(&pair.replica, "k", 1).await;
    pair.master.kill();
    pair.fail_over().await;
    tokio::time::sleep(ms(2000)).await;
    assert!(held.is_valid(), "renewed at the new master");
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    let next = its_turn(waiting).await;
    assert_eq!(count(&pair.replica, &next).await, Some(1));
    next.release().await.expect("held");
}

/// The replica has an older token than the master's last one.
#[tokio::test]
async fn a_lock_that_is_granted_again_where_the_last_token_had_not_arrived_has_a_larger_one() {
    let pair = Pair::new().await;
    let lock = pair.client.lock("k").lease(LASTING);
    let first = lock.acquire().await.expect("free");
    first.release().await.expect("held");
    pair.replica.catch_up_with(&pair.master).await;
    pair.cut_off_the_replica().await;
    let guard = lock.acquire().await.expect("free");
    let next = pair.taken_at_the_new_master().await;
    let (token, before) = (next.fencing_token(), guard.fencing_token());
    assert!(token > before, "{token} after {before}");
}

#[tokio::test]
async fn a_server_that_starts_from_an_old_save_grants_larger_tokens_than_before() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let first = lock.acquire().await.expect("free");
    first.release().await.expect("held");
    server.save().await;
    let guard = lock.acquire().await.expect("free");
    let before = guard.fencing_token();
    server.restart_with_data();
    let next = connect(&server.url()).await;
    let next = next.lock("k").lease(LASTING).wait(LONG).acquire().await;
    let token = next.expect("it was free when it was saved").fencing_token();
    assert!(token > before, "{token} after {before}");
}

/// Queues a waiter at a master that is demoted, and grants its lock to another owner. Returns how
/// long it had waited.
async fn waits_at_a_demoted_master() -> Duration {
    let pair = Pair::new().await;
    // This proxy still leads to the old master.
    let behind = Proxy::in_front_of(&pair.master);
    let waiter = connect(&behind.url()).await;
    pair.replica
        .config_set("repl-diskless-sync-delay", "0")
        .await;
    let held = hold(&pair.client, "k").await;
    // A new replica may receive nothing for a second.
    pair.replica.catch_up_with(&pair.master).await;
    let asked = Instant::now();
    let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
    crate::common::assert_soon_queued(&pair.master, "k", 1).await;
    pair.replica.catch_up_with(&pair.master).await;
    pair.fail_over().await;
    pair.master.follow(&pair.replica).await;
    pair.address.reset();
    held.release().await.expect("held");
    let next = pair.other.lock("k").lease(LASTING).wait(LONG);
    let next = next.acquire().await.expect("it was released");
    let known_for = asked.elapsed();
    let outcome = tokio::time::timeout(ms(500), waiting).await;
    assert!(
        outcome.is_err(),
        "{outcome:?}, although another owner has the lock: {next:?}"
    );
    next.release().await.expect("held");
    known_for
}

/// Replicas also deliver messages of their master, but only the master counts its receivers.
#[tokio::test]
async fn a_waiter_at_a_demoted_master_is_not_granted_the_lock_of_another() {
    // After this time a waiter confirms a grant at the server, which refuses it.
    const BELIEVES: Duration = Duration::from_millis(200);
    for _ in 0..20 {
        if waits_at_a_demoted_master().await < BELIEVES {
            return;
        }
    }
    panic!("the servers are too slow for a result");
}
