//! Where locks live. Everything above speaks this trait; only what is below knows a server.

pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::{error::Error, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{error::LockError, few::Few, key::Key, lease::Time, owner::OwnerId};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// One of the locks that an acquire asks for.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
}

/// What an acquire was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Every owner holds its lock with the count that was asked for. A token for each claim.
    Granted { tokens: Few<u64>, sent_at: Time },
    /// Nothing was taken, because another owner holds the lock of this claim, for this long unless
    /// renewed; `None`: without an end.
    Held { claim: usize, ttl: Option<Duration> },
    /// A further entry was asked for by an owner that holds nothing.
    NotHeld,
}

/// What a release was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Released,
    NotHeld,
}

/// One hold in a batch of renewals.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
}

/// What a batch of renewals was answered, in its order: whether each is still held.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) held: Vec<bool>,
    pub(crate) sent_at: Time,
}

/// The owner of a lock that stays taken for its `at_least` after its holder left.
pub(crate) const KEPT: &str = "kept";

/// A lock as its store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: String,
    pub(crate) count: u32,
    pub(crate) ttl: Option<Duration>,
    pub(crate) token: Option<u64>,
}

/// What a store tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg(feature = "redis")]
pub(crate) enum News {
    /// Somebody else changed this lock.
    Changed(Key),
    /// Any lock may have changed: everything was flushed, or news were missed.
    AllChanged,
}

/// Takes news; must not block.
#[cfg(feature = "redis")]
pub(crate) type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// A request that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{source}")]
pub(crate) struct StoreError {
    /// Whether the same request may succeed later.
    pub(crate) transient: bool,
    /// Whether the request may have been executed all the same.
    pub(crate) maybe_executed: bool,
    /// Whether something else than a lock stands under the lock's name.
    pub(crate) foreign: bool,
    pub(crate) source: Arc<dyn Error + Send + Sync>,
}

impl StoreError {
    /// No answer in time.
    #[cfg(feature = "redis")]
    pub(crate) fn no_answer(after: Duration) -> Self {
        Self::ambiguous(format!("no answer within {after:?}"))
    }

    /// An answer, but after the lease that it grants had ended.
    pub(crate) fn late() -> Self {
        Self::ambiguous("the answer came after the lease that it grants had ended")
    }

    fn ambiguous(what: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            transient: true,
            maybe_executed: true,
            foreign: false,
            source: what.into().into(),
        }
    }

    /// Never sent: other requests of the same hold were still under way.
    pub(crate) fn busy() -> Self {
        let what: Box<dyn Error + Send + Sync> =
            "other changes of the same hold are still under way".into();
        Self {
            transient: true,
            maybe_executed: false,
            foreign: false,
            source: what.into(),
        }
    }

    pub(crate) fn into_lock_error(self, action: String, waited: Duration) -> LockError {
        let source = self.source;
        if self.transient {
            LockError::Unavailable {
                action,
                waited,
                source,
            }
        } else {
            LockError::Store { action, source }
        }
    }
}

/// One place where locks live. Every operation is atomic, and idempotent: sent again it changes
/// nothing more and answers the same.
pub(crate) trait Store: Send + Sync + 'static {
    /// Makes every owner hold its key with exactly `count` entries, or none of them: 1 takes free
    /// locks, more enter a lock that the owner holds. The remaining TTL only grows.
    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        timeout: Duration,
    ) -> Answer<'a, Acquired>;

    /// Lowers the owner's entries to exactly `count`. Zero gives the lock back and wakes waiters;
    /// with `keep` above zero it stays taken, by nobody, for that long.
    fn release<'a>(
        &'a self,
        key: &'a Key,
        owner: OwnerId,
        count: u32,
        keep: Duration,
        timeout: Duration,
    ) -> Answer<'a, Released>;

    /// Extends every lease in the batch whose owner still holds its lock. Never creates one.
    /// Nothing heard for as long as `silence` means that another connection may do better.
    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed>;

    /// Who holds the lock.
    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>>;

    /// Watches for releases of the lock, until the watch is dropped.
    fn watch(self: Arc<Self>, key: &Key) -> Box<dyn Watch>;

    /// What the store does in the background; runs for as long as its client lives.
    fn background(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// A wish to be told of the releases of one lock.
pub(crate) trait Watch: Send {
    /// Resolves when releases from now on will be told, or when that cannot be had.
    fn ready(&mut self) -> BoxFuture<'_, ()>;

    /// Resolves when the lock was released, or may have been, since the last call.
    fn woken(&mut self) -> BoxFuture<'_, ()>;
}
