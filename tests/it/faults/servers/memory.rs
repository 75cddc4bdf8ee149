//! A server with full memory: locks can be released, and a warning names the risk of eviction.

use rlock_core::LockError;
use rlock_testkit::{RedisServer, eventually};

use crate::common::log::{keep_log, logged_with};
use crate::common::{
    LONG, assert_soon_free, assert_soon_queued, assert_unavailable, client, its_turn, ms, name,
    resp2,
};
use crate::leases::clock::{self, HOUR};

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
async fn a_full_server_takes_a_lock_back_that_others_wait_for() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for dropped in [false, true] {
        let held = one.lock("k").lease(HOUR).acquire().await.expect("free");
        // One waiter in the holder's process, and one in another.
        let waiting = [&one, &other].map(|client| {
            let lock = client.lock("k").lease(HOUR).wait(LONG);
            tokio::spawn(async move { lock.run(async {}).await })
        });
        assert_soon_queued(&server, "k", 1).await;
        server.config_set("maxmemory", "1").await;
        let owner = held.owner();
        if dropped {
            drop(held);
        } else {
            held.release().await.expect("released");
        }
        eventually(LONG, "it is released", async || {
            !server.hgetall(&name("k")).await.contains_key(&owner)
        })
        .await;
        // Waiters that were not served at once get the lock when there is room.
        server.config_set("maxmemory", "0").await;
        for waiting in waiting {
            its_turn(waiting).await;
        }
        assert_soon_free(&server, "k").await;
    }
}

#[tokio::test]
async fn a_full_server_grants_no_lock_and_accepts_every_renewal_and_release() {
    let server = RedisServer::builder()
        .config("maxmemory-policy", "noeviction")
        .start();
    let (clock, client) = clock::connect(&resp2(&server.url())).await;
    let outer = client.lock("k").acquire().await.expect("free");
    let inner = outer.scope(client.lock("k").acquire()).await;
    let inner = inner.expect("enters");
    let dropped = client.lock("dropped").acquire().await.expect("free");
    let kept = client.lock("kept").acquire().await.expect("free");
    server.config_set("maxmemory", "1").await;

    eventually(LONG, "the error names the reason", async || {
        let outcome = client.lock("new").wait(ms(500)).acquire().await;
        let said = assert_unavailable(outcome, "the server is full");
        said.contains("OOM")
    })
    .await;
    let refused = client.lock("new").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));

    clock.advance(HOUR / 2);
    for guard in [&outer, &dropped, &kept] {
        let renewed = async || guard.valid_for() > HOUR / 2;
        eventually(LONG, guard.key(), renewed).await;
    }
    inner.release().await.expect("released");
    outer.release().await.expect("released");
    assert!(!server.exists(&name("k")).await);
    drop(dropped);
    assert_soon_free(&server, "dropped").await;
    client.shutdown().await.expect("everything is released");
    assert!(!server.exists(&name("kept")).await);
    drop(kept);
}
