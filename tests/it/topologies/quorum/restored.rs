//! Members that come back without a lock get it from the renewals of its holder.

use rlock_core::{Lock, LockClient, LockGuard};
use rlock_testkit::{RedisServer, assert_taken, eventually};

use super::Servers;
use crate::{
    common::{LASTING, LONG, count, fence, name},
    topologies::{RENEWED, assert_soon_extended},
};

/// Waits until this server has the lock of this guard, and the count of its two entries if the lock is exclusive.
async fn assert_soon_restored(server: &RedisServer, guard: &LockGuard) {
    eventually(LONG, "the server has the lock again", async || {
        let shared = format!("{}:shared", name(guard.key()));
        if server.exists(&shared).await {
            let holders: Vec<String> = server.command(&["ZRANGE", &shared, "0", "-1"]).await;
            holders.contains(&guard.owner())
        } else {
            count(server, guard).await == Some(2)
        }
    })
    .await;
}

/// Acquires a lock while a server is down. Then each server fails in turn, and comes back before the next one does.
async fn survives(back: impl Fn(&RedisServer), lock: impl Fn(&LockClient) -> Lock) {
    let three = Servers::some(3);
    let (client, other) = (three.client().await, three.client().await);
    for server in &three.0 {
        server.save().await;
    }
    three.0[2].kill();
    let lock = lock(&client).lease(RENEWED).wait(LONG);
    let guard = lock.acquire().await.expect("two servers are a majority");
    let inner = guard.scope(lock.acquire()).await.expect("enters");
    for down in [2, 0, 1, 2] {
        three.0[down].kill();
        assert_soon_extended(&guard).await;
        back(&three.0[down]);
        assert_soon_restored(&three.0[down], &guard).await;
        assert_taken(&other, "k").await;
    }
    let token = guard.token().as_u64();
    for server in &three.0 {
        let fence = fence("k");
        let fence: u64 = server.command(&["GET", &fence]).await;
        assert!(fence >= token / 128, "{fence} is not that of {token}");
    }
    inner.release().await.expect("held");
    guard.release().await.expect("held");
    let next = other.lock("k").lease(LASTING).wait(LONG).acquire().await;
    let next = next.expect("free");
    assert!(next.token().as_u64() > token);
    next.release().await.expect("held");
    three.assert_nothing_left().await;
}

#[tokio::test]
async fn a_hold_survives_if_each_server_in_turn_restarts_empty() {
    survives(RedisServer::restart, |client| client.lock("k")).await;
}

#[tokio::test]
async fn a_shared_hold_survives_if_each_server_in_turn_comes_back_with_older_data() {
    survives(RedisServer::restart_with_data, |client| {
        client.lock("k").shared()
    })
    .await;
}
