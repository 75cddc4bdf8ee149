//! A server with full memory: locks can be released, and a warning names the risk of eviction.

use std::time::Duration;

use rlock_core::{LockError, LostCause};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::log::{keep_log, logged_of};
use crate::common::{
    LASTING, LONG, assert_lost, assert_soon_free, assert_soon_queued, client, hold, its_turn, ms,
    name, timed,
};

/// Returns the lines of the log so far that contain all of these words.
fn logged_with(words: &[&str]) -> Vec<String> {
    let mut lines = logged_of(words[0]);
    lines.retain(|line| words.iter().all(|word| line.contains(word)));
    lines
}

const EVICTING: [&str; 7] = [
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
];

#[tokio::test]
async fn a_client_warns_of_every_policy_that_may_evict_locks_and_of_no_other() {
    keep_log();
    let server = RedisServer::start();
    let warnings = |policy: &str| {
        let policy = format!("policy=\"{policy}\"");
        logged_with(&["WARN", "may evict locks", &policy]).len()
    };
    for policy in EVICTING {
        server.config_set("maxmemory-policy", policy).await;
        server.config_set("maxmemory", "0").await;
        drop(client(&server).await);
        assert_eq!(
            warnings(policy),
            0,
            "{policy}: without a limit nothing is evicted"
        );
        server.config_set("maxmemory", "100mb").await;
        drop(client(&server).await);
        assert_eq!(warnings(policy), 1, "{policy}");
    }
    server.config_set("maxmemory-policy", "noeviction").await;
    drop(client(&server).await);
    assert_eq!(warnings("noeviction"), 0);
}

#[tokio::test]
async fn the_loss_of_an_evicted_lock_is_reported_at_once() {
    keep_log();
    for policy in EVICTING {
        let server = RedisServer::start();
        let client = client(&server).await;
        let key = format!("evicted:{policy}");
        let guard = hold(&client, &key).await;
        server.config_set("maxmemory-policy", policy).await;
        server.config_set("maxmemory", "1").await;
        // The next write evicts the lock.
        let mut connection = server.connection().await;
        let _: redis::RedisResult<()> = redis::cmd("SET")
            .arg(&["other", "value"])
            .query_async(&mut connection)
            .await;
        assert!(!server.exists(&name(&key)).await, "{policy} evicts it");
        // The next renewal is ten seconds away.
        assert_lost(&guard, Duration::from_secs(5), LostCause::Removed).await;
        let losses = || logged_with(&["WARN", "lock lost", &key]);
        // The log line follows right after the guard's notification.
        eventually(LONG, "it is logged", async || !losses().is_empty()).await;
        let losses = losses();
        assert_eq!(losses.len(), 1, "{policy}: {losses:?}");
        assert!(losses[0].contains("evicted"), "{losses:?}");
    }
}

#[tokio::test]
async fn a_full_server_takes_a_lock_back_that_others_wait_for() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for dropped in [false, true] {
        let held = hold(&one, "k").await;
        // One waiter in the holder's process, and one in another.
        let waiting = [&one, &other].map(|client| {
            let lock = client.lock("k").lease(LASTING).wait(LONG);
            tokio::spawn(async move { lock.run(async {}).await })
        });
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(200)).await;
        server.config_set("maxmemory", "1").await;
        let owner = held.owner().to_string();
        if dropped {
            drop(held);
        } else {
            held.release().await.expect("released");
        }
        let given_back = async {
            while server.hgetall(&name("k")).await.contains_key(&owner) {
                tokio::time::sleep(ms(10)).await;
            }
        };
        within(LONG, "it is released", given_back).await;
        tokio::time::sleep(ms(300)).await;
        // Waiters that were not served at once get the lock when there is room.
        server.config_set("maxmemory", "0").await;
        for waiting in waiting {
            its_turn(waiting).await;
        }
        assert_soon_free(&server, "k").await;
    }
}

#[tokio::test]
async fn a_client_of_a_full_server_can_be_shut_down_and_leaves_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = Vec::new();
    for n in 0..50 {
        let lock = client.lock(format!("many:{n}")).lease(LASTING);
        guards.push(lock.acquire().await.expect("free"));
    }
    server.config_set("maxmemory", "1").await;
    let (refused, took) = timed(client.lock("new").wait(ms(300)).acquire()).await;
    let refused = refused.expect_err("there is no room");
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused:?}"
    );
    assert!(took < ms(2500), "{took:?}");
    client.shutdown().await.expect("everything is released");
    assert_eq!(server.keys("lock:{many:*}").await, Vec::<String>::new());
    assert_eq!(guards.len(), 50);
}
