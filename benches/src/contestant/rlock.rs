//! rlock, the peer of that name. It waits by polling, and renews by a task for each lock.

use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rlock_peer::{
    AcquireOptions, RenewalMode,
    async_lock::{RLock, RLockGuard},
};

use super::{
    BoxFuture, Contestant, IDLE_LEASE, IDLE_RENEWAL, Inside, LEASE, RETRY, Seat, TAKEN_AT_ONCE,
    inside,
};

pub(super) struct Rlock(RLock);

impl Rlock {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(RLock::new(url).await?))
    }
}

impl Contestant for Rlock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let key = format!("rlock:{key}");
        Box::pin(async {
            let options = AcquireOptions::builder().ttl(LEASE).retry_interval(RETRY);
            let seat = RlockSeat {
                manager: self.0.clone(),
                key,
                options: options.build()?,
            };
            Ok(Box::new(seat) as Box<dyn Seat>)
        })
    }
}

struct RlockSeat {
    manager: RLock,
    key: String,
    options: AcquireOptions,
}

impl Seat for RlockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let options = self.options.clone();
            let taking = self.manager.acquire_mutex_with_options(&self.key, options);
            let mut guard = taking.await?;
            let inside = inside(stay);
            guard.release().await?;
            Ok(inside)
        })
    }
}

pub(super) async fn hold(url: &str, keys: &[String]) -> Result<(RLock, Vec<RLockGuard>)> {
    let manager = RLock::new(url).await?;
    let options = AcquireOptions::builder()
        .ttl(IDLE_LEASE)
        .renewal_mode(RenewalMode::Interval(IDLE_RENEWAL))
        .build()?;
    let guards = stream::iter(keys)
        .map(|key| manager.acquire_mutex_with_options(key, options.clone()))
        .buffer_unordered(TAKEN_AT_ONCE)
        .try_collect()
        .await?;
    Ok((manager, guards))
}
