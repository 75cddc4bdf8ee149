//! This framework: waiting without a bound, watchdog on, everything else as it comes.

use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rlock_core::{Lock, LockClient, LockGuard};

use super::{BoxFuture, Contestant, IDLE_LEASE, Inside, LEASE, Seat, inside};

pub(super) struct Ours(LockClient);

impl Ours {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }
}

impl Contestant for Ours {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let lock = self.0.lock(key).lease(LEASE).wait_forever();
        Box::pin(async { Ok(Box::new(OurSeat(lock)) as Box<dyn Seat>) })
    }
}

struct OurSeat(Lock);

impl Seat for OurSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let guard = self.0.acquire().await?;
            let inside = inside(stay);
            guard.release().await?;
            Ok(inside)
        })
    }
}

/// The watchdog renews every third of a lease.
pub(super) async fn hold(url: &str, keys: &[String]) -> Result<(LockClient, Vec<LockGuard>)> {
    let client = LockClient::connect(url).await?;
    let guards = stream::iter(keys)
        .map(|key| {
            let lock = client.lock(key).lease(IDLE_LEASE);
            async move { lock.acquire().await }
        })
        .buffer_unordered(super::TAKEN_AT_ONCE)
        .try_collect()
        .await?;
    Ok((client, guards))
}
