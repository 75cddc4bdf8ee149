//! The peer rlock, a crate of the same name. It waits by polling, and renews in a task for each lock.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_peer::{
    AcquireOptions, RenewalMode,
    async_lock::{RLock, RLockGuard},
};

use super::{BoxFuture, Contestant, Held, Holding, Inside, RETRY, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Rlock {
    manager: RLock,
    options: AcquireOptions,
}

impl Rlock {
    pub(super) async fn connect(url: &str, lease: Duration) -> Result<Self> {
        let options = AcquireOptions::builder()
            .ttl(lease)
            .renewal_mode(RenewalMode::Interval(lease / 3))
            .retry_interval(RETRY);
        Ok(Self {
            manager: RLock::new(url).await?,
            options: options.build()?,
        })
    }
}

impl Contestant for Rlock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RlockSeat {
            manager: self.manager.clone(),
            key: format!("rlock:{key}"),
            options: self.options.clone(),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut guards = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys.iter().map(|key| {
                    let options = self.options.clone();
                    self.manager.acquire_mutex_with_options(key, options)
                });
                guards.extend(try_join_all(taking).await?);
            }
            Ok(Some(Box::new(guards) as Held))
        })
    }
}

impl Holding for Vec<RLockGuard> {}

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
