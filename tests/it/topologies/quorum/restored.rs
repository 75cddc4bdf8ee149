//! Members that come back without a lock get it from the renewals of its holder.

use redis::cmd;
use rlock_core::{Lock, LockClient, LockGuard};
use rlock_testkit::{RedisServer, Scripts, assert_taken, eventually};

use super::Servers;
use crate::{
    common::{LASTING, LONG, name},
    topologies::{RENEWED, assert_soon_extended},
};

/// Waits until this server has the lock of this guard.
async fn assert_soon_restored(server: &RedisServer, guard: &LockGuard) {
    let (key, owner) = (guard.key(), guard.owner());
    eventually(LONG, "the server has the lock again", async || {
        let holders: Vec<String> = if server.exists(&format!("{}:shared", name(key))).await {
            let shared = format!("{}:shared", name(key));
            server.command(&["ZRANGE", &shared, "0", "-1"]).await
        } else {
            server.hgetall(&name(key)).await.into_keys().collect()
        };
        holders.contains(&owner)
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
        let fence = format!("{}:fence", name("k"));
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

/// The count of nested entries is restored, too.
#[tokio::test]
async fn a_server_that_restarts_empty_counts_the_entries_of_a_hold() {
    let three = Servers::some(3);
    let client = three.client().await;
    let lock = client.lock("k").lease(RENEWED).wait(LONG);
    let outer = three.granted_by(&[0, 1, 2], &lock).await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    three.assert_soon_count(&outer, &[0, 1, 2], 2).await;
    three.0[1].restart();
    three.assert_soon_count(&outer, &[1], 2).await;
    inner.release().await.expect("held");
    three.assert_soon_count(&outer, &[0, 1, 2], 1).await;
    outer.release().await.expect("held");
    three.assert_nothing_left().await;
}

/// A member that is asked to restore a lock late, or twice, has released it since.
#[tokio::test]
async fn a_lock_is_not_restored_after_its_release_nor_over_another_owner() {
    let server = RedisServer::start();
    let scripts = Scripts::new();
    let mut connection = server.connection().await;
    let (one, other) = ("00000000-0000-0000-0000-000000000001:1", "another");
    let restore = async |connection: &mut _, owner: &str| -> Vec<u64> {
        let mut call = scripts.restore.prepare_invoke();
        let call = call.key(name("k")).arg(60_000).arg(120_000);
        let call = call.arg(owner).arg(1).arg(7);
        call.invoke_async(connection).await.expect("no error")
    };
    assert_eq!(restore(&mut connection, one).await, [1]);
    assert_eq!(restore(&mut connection, one).await, [0], "it has the lock");
    assert_eq!(restore(&mut connection, other).await, [0], "it is taken");
    assert_eq!(server.hgetall(&name("k")).await[one], "1");
    let mut release = scripts.release.prepare_invoke();
    let release = release.key(name("k")).arg(one).arg(0).arg(7);
    let release = release.arg(61_000).arg("lock:client:").arg("all").arg(0);
    let released: u64 = release
        .invoke_async(&mut connection)
        .await
        .expect("no error");
    assert_eq!(released, 1);
    assert_eq!(restore(&mut connection, one).await, [0], "it was released");
    let shared = format!("{one}s");
    assert_eq!(restore(&mut connection, &shared).await, [0], "as either");
    let fence = cmd("GET").arg(format!("{}:fence", name("k"))).take();
    let fence: u64 = fence.query_async(&mut connection).await.expect("a fence");
    assert!(fence >= 7);
    assert_eq!(
        restore(&mut connection, other).await,
        [1],
        "the lock is free"
    );
}
