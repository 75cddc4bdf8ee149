//! distributed-lock on its Redis backend. It does not wait at all, so the benchmark polls for it; it
//! renews by a task for each lock, the first time at once.

use std::time::Duration;

use anyhow::{Result, anyhow};
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider, lock::RedisDistributedLock};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    BoxFuture, Contestant, IDLE_LEASE, IDLE_RENEWAL, Inside, LEASE, RETRY, Seat, TAKEN_AT_ONCE,
    inside,
};

pub(super) struct Distributed(RedisLockProvider);

impl Distributed {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        provider(url, LEASE, LEASE / 3).await.map(Self)
    }
}

/// The shortest validity that it accepts is nine tenths of the lease, as by its default.
async fn provider(url: &str, lease: Duration, renewal: Duration) -> Result<RedisLockProvider> {
    let builder = RedisLockProvider::builder().url(url).expiry(lease);
    let builder = builder.extension_cadence(renewal).min_validity(lease * 9 / 10);
    Ok(builder.build().await?)
}

impl Contestant for Distributed {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        // A lock object takes one token for all of its holds, so each task has one of its own.
        let lock = self.0.create_lock(key);
        Box::pin(async { Ok(Box::new(DistributedSeat(lock)) as Box<dyn Seat>) })
    }
}

struct DistributedSeat(RedisDistributedLock);

impl Seat for DistributedSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let handle = loop {
                match self.0.try_acquire().await? {
                    Some(handle) => break handle,
                    None => tokio::time::sleep(RETRY).await,
                }
            };
            let inside = inside(stay);
            handle.release().await?;
            Ok(inside)
        })
    }
}

pub(super) async fn hold(
    url: &str,
    keys: &[String],
) -> Result<(RedisLockProvider, Vec<RedisLockHandle>)> {
    let provider = provider(url, IDLE_LEASE, IDLE_RENEWAL).await?;
    let handles = stream::iter(keys)
        .map(|key| {
            let lock = provider.create_lock(key);
            async move { lock.try_acquire().await?.ok_or_else(|| anyhow!("taken")) }
        })
        .buffer_unordered(TAKEN_AT_ONCE)
        .try_collect()
        .await?;
    Ok((provider, handles))
}
