//! The trait `Store`: what every store does with the requests of `rlock_proto::store`. Only the rooms below know
//! servers.

pub(crate) mod cluster;
pub(crate) mod credentials;
pub(crate) mod directory;
pub(crate) mod endpoint;
mod error;
pub(crate) mod examine;
pub(crate) mod floor;
pub(crate) mod keyspace;
pub(crate) mod memory;
pub(crate) mod options;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod provider;
pub(crate) mod quorum;
pub(crate) mod redis;
mod retry;
pub(crate) mod run_ids;
mod send;
pub(crate) mod tasks;
pub(crate) mod tls;

use std::{
    future::{Future, Ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::future::Either;
use rlock_proto::{
    key::Key,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Renewal, RenewalOutcome, Renewed,
        StoredLock,
    },
};

use self::directory::Directory;
pub(crate) use self::{
    error::StoreError,
    retry::{retry_while, retry_within},
    send::SendOptions,
};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type ReplyFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;
/// The reply to a request. The embedded store has it at once.
pub(crate) type Replying<'a, T> = Either<Ready<Result<T, StoreError>>, ReplyFuture<'a, T>>;

/// A store of ownerships. Every operation is atomic and idempotent: a repeated request changes nothing more, and has
/// the same outcome.
pub(crate) trait Store: Directory + Send + Sync + 'static {
    /// Returns the group of a key. Groups are renewed by different requests: they may lie in different places.
    fn group(&self, _key: &Key) -> u16 {
        0
    }

    /// Grants all locks of the request, or refuses it. A refusal names the locks that the owners may have, and the client
    /// releases those. A quorum cannot name them, and rolls back what its members granted. The remaining TTL only grows.
    ///
    /// A release hands the lock off to the first waiter and notifies its client. Waiters come before other owners.
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Replying<'a, Acquired>;

    /// Changes what an owner has: its count, its mode, or the lock as a whole. A release hands the lock off to the first waiter,
    /// and an owner that only waited leaves the queue.
    fn apply<'a>(&'a self, change: &'a Change, send: SendOptions) -> Replying<'a, Applied>;

    /// Renews the leases of the owners that still hold their locks. Never creates a lock.
    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed>;

    /// Succeeds when enough replicas have these locks, which were granted for this lease.
    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> ReplyFuture<'a, ()> {
        let _ = (claims, lease);
        Box::pin(async { Err(StoreError::no_replicas()) })
    }

    /// Returns the kind of database that requests go to.
    fn system(&self) -> Option<&'static str> {
        Some("redis")
    }

    /// Describes the store for a message, without passwords.
    fn describe(&self) -> String;

    /// Succeeds if enough servers for a lock reply. The time-out includes the wait for a connection.
    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()>;

    /// Returns keys that begin with this text: one for each master of a cluster, otherwise one.
    fn keys_everywhere(&self, text: String, timeout: Duration) -> ReplyFuture<'_, Vec<String>> {
        let _ = timeout;
        Box::pin(async { Ok(vec![text]) })
    }

    /// Returns the lock's entry, if an owner holds it.
    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>>;

    /// Returns the store if it is the embedded one.
    #[cfg(feature = "testing")]
    fn embedded(&self) -> Option<&memory::MemoryStore> {
        None
    }

    /// Connects for the first time. Without this call, the background connects.
    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()>;

    /// Runs the background of the store, for as long as its client lives.
    fn background(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// Joins the replies to renewals of one lock each. Fails only if all of them failed.
fn joined(mut replies: Vec<Result<Renewed, StoreError>>) -> Result<Renewed, StoreError> {
    let renewed = replies.iter().flatten();
    let Some(sent_at) = renewed.map(|renewed| renewed.sent_at).min() else {
        return replies.swap_remove(0);
    };
    let kept = replies.into_iter().map(|reply| match reply {
        Ok(renewed) => renewed.kept[0],
        Err(_) => RenewalOutcome::Unknown,
    });
    let kept = kept.collect();
    Ok(Renewed { kept, sent_at })
}
