//! A replica replaces its master behind the same address.

use redis::{Client, Cmd, RedisResult, Value};
use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{Proxy, RedisServer, eventually, script_text};

use super::{FAILOVER_LEASE, assert_soon_extended};
use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_passed_on, assert_soon_counted,
    assert_soon_queued, cause_of, connect, count, enqueued, fence, hold, its_turn, name,
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
async fn holders_and_waiters_find_the_new_master_behind_the_address_of_the_former() {
    let pair = Pair::new().await;
    let lock = pair.client.lock("k").lease(FAILOVER_LEASE).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(&pair.master, &guard, 2).await;
    let waiting = acquiring(pair.other.lock("k").lease(LASTING).wait(LONG * 2));
    assert_soon_queued(&pair.master, "k", 1).await;
    pair.replica.catch_up_with(&pair.master).await;
    pair.master.kill();
    pair.fail_over().await;
    assert_soon_extended(&guard).await;
    assert_eq!(count(&pair.replica, &guard).await, Some(2));
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
}

/// A recently granted lock lasts longer than a short lease, so repeating the acquire would not
/// write.
#[tokio::test]
async fn a_demoted_master_confirms_no_lock_though_there_is_nothing_to_write() {
    const DAY: &str = "86400000";
    let server = RedisServer::start();
    let [acquire, renew] = ["acquire", "renew"].map(script_text);
    let (lock, fence) = (name("k"), fence("k"));
    let _: u64 = server.command(&["HSET", &lock, "owner:1", "1"]).await;
    let _: u64 = server.command(&["PEXPIRE", &lock, "60000"]).await;
    let () = server.command(&["SET", &fence, "17500000000000"]).await;
    let asked = [
        "EVAL",
        &acquire,
        "1",
        &lock,
        "300",
        DAY,
        "0",
        "lock:client:",
        "first",
        "0",
        "owner:1",
    ];
    let renewed = ["EVAL", &renew, "1", &lock, "300", DAY, "owner:1", "0"];
    let answer: Vec<u64> = server.command(&asked).await;
    assert_eq!(answer, [1, 17_500_000_000_000]);
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
        assert!(format!("{error:#}").contains("read only"), "{error:#}");
    }
}

/// The replica misses the grant, so its token is older than the master's last one. A single server cannot prevent this
/// loss.
#[tokio::test]
async fn a_lock_that_is_granted_again_where_the_last_token_had_not_arrived_has_a_larger_one() {
    let pair = Pair::new().await;
    hold(&pair.client, "k").await.release().await.expect("held");
    pair.replica.catch_up_with(&pair.master).await;
    pair.cut_off_the_replica().await;
    // The lease does not end before the client finds the new master.
    let lock = pair.client.lock("k").lease(LONG * 3);
    let guard = lock.acquire().await.expect("free");
    let next = pair.taken_at_the_new_master().await;
    let (token, before) = (next.token().as_u64(), guard.token().as_u64());
    assert!(token > before, "{token} after {before}");
    assert_lost(&guard, LONG, LostCause::Removed).await;
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_eq!(count(&pair.replica, &next).await, Some(1));
    next.release().await.expect("held");
}

/// Otherwise a waiter that still listens at a demoted master would rely on a grant of the new master, although that master
/// has passed over it, because a server counts only the receivers that listen there.
#[tokio::test]
async fn a_replica_gets_no_messages_for_waiters_from_its_master() {
    let pair = Pair::new().await;
    let mut watch = pair.replica.watch_commands().await;
    let held = hold(&pair.client, "k").await;
    let waiting = enqueued(&pair.master, pair.other.lock("k").lease(LASTING).wait(LONG)).await;
    held.release().await.expect("held");
    its_turn(waiting).await.release().await.expect("held");
    let _: u64 = pair.master.command(&["PUBLISH", "last", ""]).await;
    let mut channels = Vec::new();
    eventually(LONG, "the replica has all messages", async || {
        let seen = watch.seen().await.iter();
        let messages = seen.filter(|command| command.is("PUBLISH"));
        channels = messages.map(|command| command.words[1].clone()).collect();
        channels.last().is_some_and(|channel| channel == "last")
    })
    .await;
    assert_eq!(channels, ["last"]);
}
