//! Redisson's `RLock` under the same name: the two libraries exclude each other because they store a lock in the same way.
//!
//! [`Thread`] sends what `RedissonLock` of Redisson 4 does to the server (<https://github.com/redisson/redisson>, Apache-2.0): a
//! lock is a hash of `<uuid of the instance>:<thread id>` to the number of its entries, with a time to live.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use rlock_core::LockError;
use rlock_testkit::{RedisServer, Witness, eventually, within};
use tokio::{task::yield_now, time::sleep};

use crate::common::{
    LASTING, LONG, assert_nothing_left, assert_soon_free, client, connect, connect_with, enqueued,
    hold, its_turn, ms, name, resp2,
};

const INSTANCE: &str = "0f8b2f0e-6f3d-4a52-9d3e-6a1b7c0d9e55";

/// A thread of a Java process that uses the lock `k`.
struct Thread {
    server: Arc<RedisServer>,
    owner: String,
}

impl Thread {
    fn new(server: &Arc<RedisServer>, id: u32) -> Self {
        Self {
            server: Arc::clone(server),
            owner: format!("{INSTANCE}:{id}"),
        }
    }

    async fn eval<T: redis::FromRedisValue>(&self, script: &str, argument: &str) -> T {
        let words = ["EVAL", script, "1", &name("k"), &self.owner, argument];
        self.server.command(&words).await
    }

    /// Enters the lock, or returns the remaining milliseconds of another holder's lease.
    async fn try_lock(&self, lease: Duration) -> Option<u64> {
        const LOCK: &str = "\
            if redis.call('EXISTS', KEYS[1]) > redis.call('HEXISTS', KEYS[1], ARGV[1]) then \
                return redis.call('PTTL', KEYS[1]) \
            end \
            redis.call('HINCRBY', KEYS[1], ARGV[1], 1) \
            redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        self.eval(LOCK, &lease.as_millis().to_string()).await
    }

    /// Leaves the lock. Returns `None` if it was lost, and otherwise whether it is free now.
    async fn unlock(&self) -> Option<bool> {
        const UNLOCK: &str = "\
            if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end \
            if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end \
            redis.call('DEL', KEYS[1]) \
            redis.call('PUBLISH', 'redisson_lock__channel:' .. KEYS[1], '0') \
            return 1";
        self.eval(UNLOCK, "").await
    }

    /// Renews the lease, and returns whether the thread still has the lock.
    async fn renew(&self, lease: Duration) -> bool {
        const RENEW: &str = "\
            return redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        let renewed: Option<bool> = self.eval(RENEW, &lease.as_millis().to_string()).await;
        renewed == Some(true)
    }
}

#[tokio::test]
async fn a_lock_that_redisson_holds_is_taken_in_every_mode() {
    let server = Arc::new(RedisServer::start());
    let (client, thread) = (client(&server).await, Thread::new(&server, 55));
    assert_eq!(thread.try_lock(LASTING).await, None);
    for lock in [
        client.lock("k"),
        client.lock("k").shared(),
        client.lock("k").permits(3),
        client.lock_all(["j", "k"]),
    ] {
        assert!(lock.try_acquire().await.expect("a reply").is_none());
    }
    let info = client.inspect("k").await.expect("a reply").expect("taken");
    assert_eq!((info.owner, info.depth), (thread.owner.clone(), 1));
    assert!(info.holder.is_none(), "Redisson answers no questions");
    assert_eq!(thread.unlock().await, Some(true));
    hold(&client, "k").await.release().await.expect("held");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_waiter_has_the_lock_when_redisson_unlocks_it() {
    let server = Arc::new(RedisServer::start());
    for url in [server.url(), resp2(&server.url())] {
        let (client, thread) = (connect(&url).await, Thread::new(&server, 55));
        for _ in 0..2 {
            assert_eq!(thread.try_lock(LASTING).await, None);
        }
        let waiting = enqueued(&server, client.lock("k").wait(LONG)).await;
        assert_eq!(thread.unlock().await, Some(false), "it entered twice");
        assert!(!waiting.is_finished());
        assert_eq!(thread.unlock().await, Some(true));
        its_turn(waiting).await.release().await.expect("held");
    }
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_waiter_respects_what_redisson_renews() {
    let server = Arc::new(RedisServer::start());
    let (client, thread) = (client(&server).await, Thread::new(&server, 55));
    assert_eq!(thread.try_lock(ms(6000)).await, None);
    let waiting = enqueued(&server, client.lock("k").wait(LONG)).await;
    assert!(thread.renew(LASTING).await);
    let mut watch = server.watch_commands().await;
    // The waiter asks again when the lease that it knows of would end.
    eventually(LONG, "the waiter asks again", async || {
        watch.count_of("EVALSHA").await > 0
    })
    .await;
    assert!(thread.renew(LASTING).await, "the lock is still Redisson's");
    assert!(!waiting.is_finished());
    assert_eq!(thread.unlock().await, Some(true));
    its_turn(waiting).await.release().await.expect("held");
}

#[tokio::test]
async fn redisson_waits_for_a_lock_that_a_guard_or_readers_hold() {
    let server = Arc::new(RedisServer::start());
    let (client, thread) = (client(&server).await, Thread::new(&server, 55));
    let lock = client.lock("k").lease(LASTING);
    for lock in [lock.clone(), lock.clone().shared(), lock.permits(3)] {
        let held = lock.acquire().await.expect("free");
        let left = thread.try_lock(LASTING).await.expect("taken");
        assert!((1..=600_000).contains(&left), "{left} ms");
        assert_eq!(thread.unlock().await, None);
        assert!(!thread.renew(LASTING).await);
        held.release().await.expect("held");
        assert_soon_free(&server, "k").await;
        assert_eq!(thread.try_lock(LASTING).await, None);
        assert_eq!(thread.unlock().await, Some(true));
    }
}

/// An operator takes the lock from Redisson, which learns of it when it unlocks.
#[tokio::test]
async fn a_lock_of_redisson_can_be_released_by_force() {
    let server = Arc::new(RedisServer::start());
    let (client, thread) = (client(&server).await, Thread::new(&server, 55));
    assert_eq!(thread.try_lock(LASTING).await, None);
    assert!(client.force_release("k").await.expect("a reply"));
    let held = hold(&client, "k").await;
    assert_eq!(thread.unlock().await, None);
    held.release().await.expect("held");
}

#[tokio::test]
async fn calls_and_threads_of_redisson_exclude_each_other() {
    const EACH: u64 = 20;
    let (server, inside) = (Arc::new(RedisServer::start()), Witness::new());
    let threads = (1..=3).map(async |id| {
        let thread = Thread::new(&server, id);
        for _ in 0..EACH {
            // Redisson sleeps until another thread notifies it, or for the rest of the lease.
            while thread.try_lock(LASTING).await.is_some() {
                sleep(ms(1)).await;
            }
            let witness = inside.enter(thread.owner.clone());
            yield_now().await;
            drop(witness);
            assert_eq!(thread.unlock().await, Some(true));
        }
    });
    let calls = (1..=3).map(async |id| {
        let client = connect_with(LONG, &server.url()).await;
        let lock = client.lock("k").lease(LASTING).wait(LONG * 2);
        for _ in 0..EACH {
            let guard = lock.acquire().await?;
            let witness = inside.enter(format!("call {id}"));
            yield_now().await;
            drop(witness);
            guard.release().await?;
        }
        Ok::<_, LockError>(())
    });
    let all = async { tokio::join!(join_all(threads), join_all(calls)).1 };
    for ended in within(LONG * 2, "all have their turns", all).await {
        ended.expect("every release is confirmed");
    }
    inside.assert_held();
    assert_eq!(inside.entries(), 6 * EACH);
    assert_nothing_left(&server).await;
}
