//! The peer distributed-lock on its Redis backend. It cannot wait, so the benchmark polls for it. It renews in a task
//! for each lock, starting at once.

use std::time::Duration;

use anyhow::{Result, anyhow};
use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider, lock::RedisDistributedLock};
use futures_util::future::try_join_all;

use super::{BoxFuture, Contestant, Held, Holding, Inside, RETRY, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Distributed(RedisLockProvider);

impl Distributed {
    pub(super) async fn connect(url: &str, lease: Duration) -> Result<Self> {
        let builder = RedisLockProvider::builder().url(url).expiry(lease);
        // It requires a validity of at least nine tenths of the lease, which is its default.
        let builder = builder
            .extension_cadence(lease / 3)
            .min_validity(lease * 9 / 10);
        Ok(Self(builder.build().await?))
    }
}

impl Contestant for Distributed {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        // A lock object uses one token for all of its holds, so each task needs its own.
        let lock = self.0.create_lock(key);
        Box::pin(async { Ok(Box::new(DistributedSeat(lock)) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut handles = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys.iter().map(|key| async move {
                    let handle = self.0.create_lock(key).try_acquire().await?;
                    handle.ok_or_else(|| anyhow!("the key is taken"))
                });
                handles.extend(try_join_all(taking).await?);
            }
            Ok(Some(Box::new(handles) as Held))
        })
    }
}

impl Holding for Vec<RedisLockHandle> {}

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
