//! This framework with retentions.

use std::time::Duration;

use anyhow::Result;
use rlock_core::{Lock, LockClient};

use super::{BoxFuture, Contestant, Inside, Seat, inside};

/// The number of keys that a task uses in turn, so that it never finds its own retained lock.
pub(super) const APART: usize = 256;

pub(super) struct Retaining {
    client: LockClient,
    /// The number of keys that each task uses in turn.
    keys: usize,
}

impl Retaining {
    pub(super) async fn connect(
        url: &str,
        lease: Duration,
        retain: Duration,
        keys: usize,
    ) -> Result<Self> {
        let builder = LockClient::builder()
            .default_lease(lease)
            .default_retain(retain);
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
