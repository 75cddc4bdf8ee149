//! This framework with its defaults, except that waits have no limit.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_core::{Lock, LockClient, LockGuard, StoreUrl};

use super::{BoxFuture, Contestant, Held, Holding, Inside, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Ours(LockClient);

impl Ours {
    /// `max_local_handovers` has its default if it is `None`.
    pub(super) async fn connect(
        url: &str,
        lease: Duration,
        max_local_handovers: Option<usize>,
    ) -> Result<Self> {
        let mut builder = LockClient::builder().default_lease(lease);
        if let Some(most) = max_local_handovers {
            builder = builder.max_local_handovers(most);
        }
        Ok(Self(builder.connect(url).await?))
    }

    pub(super) async fn connect_to_quorum(urls: &[String], lease: Duration) -> Result<Self> {
        let builder = LockClient::builder().default_lease(lease);
        Ok(Self(builder.connect(StoreUrl::quorum(urls)).await?))
    }
}

/// Nested calls inside a lock that each seat holds.
pub(super) struct Nested(pub(super) Ours);

impl Contestant for Nested {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let Ours(client) = &self.0;
        let lock = client.lock(format!("nested:{key}")).wait_forever();
        Box::pin(async {
            let outer = lock.acquire().await?;
            Ok(Box::new(NestedSeat { lock, outer }) as Box<dyn Seat>)
        })
    }
}

struct NestedSeat {
    lock: Lock,
    outer: LockGuard,
}

impl Seat for NestedSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        let mut seat = OurSeat(self.lock.clone());
        let nested = async move { seat.pair(stay).await };
        Box::pin(self.outer.scope(nested))
    }
}

impl Contestant for Ours {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let lock = self.0.lock(key).wait_forever();
        Box::pin(async { Ok(Box::new(OurSeat(lock)) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut guards = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys
                    .iter()
                    .map(|key| async move { self.0.lock(key).acquire().await });
                guards.extend(try_join_all(taking).await?);
            }
            Ok(Some(Box::new(guards) as Held))
        })
    }
}

impl Holding for Vec<LockGuard> {
    fn lost(&self) -> usize {
        self.iter().filter(|guard| !guard.is_valid()).count()
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
