//! This framework, keeping locks for a while after their last use.

use std::time::Duration;

use anyhow::Result;
use rlock_core::{Lock, LockClient};

use super::{BoxFuture, Contestant, Inside, Seat, inside};

/// How many keys a task takes one after another where it is to take none again while it is retained.
pub(super) const APART: usize = 256;

pub(super) struct Retaining {
    client: LockClient,
    /// How many keys each task takes one after another.
    keys: usize,
}

impl Retaining {
    pub(super) async fn connect(
        url: &str,
        lease: Duration,
        retain: Duration,
        keys: usize,
    ) -> Result<Self> {
        let builder = LockClient::builder().default_lease(lease).retain(retain);
        let client = builder.connect(url).await?;
        Ok(Self { client, keys })
    }
}

impl Contestant for Retaining {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let keys = (0..self.keys).map(|n| format!("retained:{key}:{n}"));
        let locks = keys.map(|key| self.client.lock(key).wait_forever());
        let seat = RetainingSeat {
            locks: locks.collect(),
            pairs: 0,
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RetainingSeat {
    locks: Vec<Lock>,
    pairs: usize,
}

impl Seat for RetainingSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let lock = &self.locks[self.pairs % self.locks.len()];
            self.pairs += 1;
            let guard = lock.acquire().await?;
            let inside = inside(stay);
            guard.release().await?;
            Ok(inside)
        })
    }
}
