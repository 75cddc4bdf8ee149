//! How a holder notices that its lock is gone: by a report of the server, or by its next renewal.

use rlock_core::LostCause;
use rlock_testkit::{RedisServer, eventually};

use super::logged::losses;
use crate::{
    common::{LONG, assert_lost, client, log::keep_log, name},
    leases::clock::HOUR,
};

#[tokio::test]
async fn the_loss_of_an_evicted_lock_is_reported_at_once() {
    keep_log();
    for policy in ["volatile-ttl", "allkeys-lru"] {
        let server = RedisServer::start();
        let client = client(&server).await;
        let key = format!("evicted:{policy}");
        let guard = client.lock(&key).lease(HOUR).acquire().await;
        let guard = guard.expect("free");
        server.config_set("maxmemory-policy", policy).await;
        server.config_set("maxmemory", "1").await;
        // The next write evicts the lock.
        let mut connection = server.connection().await;
        let _: redis::RedisResult<()> = redis::cmd("SET")
            .arg(&["other", "value"])
            .query_async(&mut connection)
            .await;
        assert!(!server.exists(&name(&key)).await, "{policy} evicts it");
        // The next renewal is twenty minutes away.
        assert_lost(&guard, LONG, LostCause::Removed).await;
        let losses = || losses(&key);
        // The log line follows right after the guard's notification.
        eventually(LONG, "it is logged", async || !losses().is_empty()).await;
        let losses = losses();
        assert_eq!(losses.len(), 1, "{policy}: {losses:?}");
        assert!(losses[0].contains("evicted"), "{losses:?}");
    }
}
