//! Readers that share a lock of this framework, or a `tokio::sync::RwLock`, which is the limit within a process. Each
//! reader yields inside, so that the reads overlap.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use rlock_core::{Lock, LockClient};
use tokio::task::yield_now;

use super::{BoxFuture, Contestant, Inside, Seat, inside};

/// One lock for all keys.
#[derive(Default)]
pub(super) struct RwLocks(Arc<tokio::sync::RwLock<()>>);

impl Contestant for RwLocks {
    fn seat<'a>(&'a self, _key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RwLockSeat(Arc::clone(&self.0));
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RwLockSeat(Arc<tokio::sync::RwLock<()>>);

impl Seat for RwLockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let _held = self.0.read().await;
            yield_now().await;
            Ok(inside(stay))
        })
    }
}

pub(super) struct Shared(LockClient);

impl Shared {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockClient::connect(url).await?))
    }
}

impl Contestant for Shared {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let lock = self.0.lock(key).shared().wait_forever();
        Box::pin(async { Ok(Box::new(SharedSeat(lock)) as Box<dyn Seat>) })
    }
}

struct SharedSeat(Lock);

impl Seat for SharedSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let guard = self.0.acquire().await?;
            yield_now().await;
            let inside = inside(stay);
            guard.release().await?;
            Ok(inside)
        })
    }
}
