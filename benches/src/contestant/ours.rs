//! This framework with its defaults, except that waits have no limit.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_core::{Lock, LockClient, LockGuard};

use super::{BoxFuture, Contestant, Held, Holding, Inside, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Ours {
    client: LockClient,
    /// The prefix of all keys, so that clients of one server share none.
    prefix: &'static str,
    /// The number of keys that each task uses in turn.
    keys: usize,
}

impl Ours {
    pub(super) fn new(client: LockClient) -> Self {
        Self {
            client,
            prefix: "",
            keys: 1,
        }
    }

    /// Wraps a client that retains its locks, and uses this many keys for each task in turn.
    pub(super) fn retaining(client: LockClient, keys: usize) -> Self {
        Self {
            client,
            prefix: "retained:",
            keys,
        }
    }
}

/// Nested calls inside a lock that each seat holds.
pub(super) struct Nested(pub(super) Ours);

impl Contestant for Nested {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let lock = self.0.client.lock(format!("nested:{key}")).wait_forever();
        Box::pin(async {
            let outer = lock.acquire().await?;
            Ok(Box::new(NestedSeat {
                seat: OurSeat::of(vec![lock]),
                outer,
            }) as Box<dyn Seat>)
        })
    }
}

struct NestedSeat {
    seat: OurSeat,
    outer: LockGuard,
}

impl Seat for NestedSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(self.outer.scope(self.seat.pair(stay)))
    }
}

impl Contestant for Ours {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let keys = (0..self.keys).map(|n| format!("{}{key}:{n}", self.prefix));
        let locks = keys.map(|key| self.client.lock(key).wait_forever());
        let seat = OurSeat::of(locks.collect());
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut guards = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys
                    .iter()
                    .map(|key| async move { self.client.lock(key).acquire().await });
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

/// Locks that a task takes in turn.
struct OurSeat {
    locks: Vec<Lock>,
    pairs: usize,
}

impl OurSeat {
    fn of(locks: Vec<Lock>) -> Self {
        Self { locks, pairs: 0 }
    }
}

impl Seat for OurSeat {
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
