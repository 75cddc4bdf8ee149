//! A server of a topology, and what it has of one lock.

use std::collections::BTreeMap;

use crate::{PostgresServer, Proxy, RedisServer, leftovers};

#[derive(Clone, Copy, Debug)]
pub(super) enum Server<'a> {
    Redis(&'a RedisServer),
    Postgres(&'a PostgresServer),
}

impl Server<'_> {
    pub(super) fn front(&self) -> &Proxy {
        match self {
            Self::Redis(server) => server.front(),
            Self::Postgres(server) => server.front(),
        }
    }

    pub(super) fn pause(&self) {
        match self {
            Self::Redis(server) => server.pause(),
            Self::Postgres(server) => server.pause(),
        }
    }

    pub(super) fn resume(&self) {
        match self {
            Self::Redis(server) => server.resume(),
            Self::Postgres(server) => server.resume(),
        }
    }

    /// Deletes the lock, and returns whether there was one.
    pub(super) async fn delete(&self, lock: &str) -> bool {
        match self {
            Self::Redis(server) => server.del(lock).await,
            Self::Postgres(server) => server.delete(lock).await,
        }
    }

    /// Returns the owners, with the counts of their entries.
    pub(super) async fn owners(&self, lock: &str) -> BTreeMap<String, String> {
        match self {
            Self::Redis(server) => server.hgetall(lock).await,
            Self::Postgres(server) => {
                let counts = format!("SELECT owner, count::text FROM {}", held(lock));
                server.pairs(&counts).await.into_iter().collect()
            }
        }
    }

    /// Returns whether the lock has ever been granted.
    pub(super) async fn knows(&self, lock: &str) -> bool {
        match self {
            Self::Redis(server) => server.exists(&format!("{lock}:fence")).await,
            Self::Postgres(server) => {
                let row = format!("SELECT key, '' FROM rlock.lock WHERE key = '{lock}'");
                !server.pairs(&row).await.is_empty()
            }
        }
    }

    /// Returns whether there is nothing of the lock but its last fence.
    pub(super) async fn is_clear(&self, lock: &str) -> bool {
        match self {
            Self::Redis(server) => {
                let keys = server.keys(&format!("{lock}*")).await;
                keys.iter().all(|key| leftovers::stays(key))
            }
            Self::Postgres(server) => {
                let waiters = format!("SELECT owner, '' FROM rlock.waiter WHERE key = '{lock}'");
                let left = format!("SELECT owner, '' FROM {} UNION {waiters}", held(lock));
                server.pairs(&left).await.is_empty()
            }
        }
    }
}

/// The holders of a lock in Postgres. The rows of those whose leases have ended go with the next request.
fn held(lock: &str) -> String {
    format!("rlock.holder WHERE key = '{lock}' AND expires_at > clock_timestamp()")
}
