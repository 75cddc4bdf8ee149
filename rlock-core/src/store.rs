//! The store of ownerships. Modules above this one use the trait; only modules below it know servers.

pub(crate) mod cluster;
pub(crate) mod endpoint;
mod error;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

pub(crate) use self::error::StoreError;
use crate::{few::Few, key::Key, lease::Time, owner::OwnerId};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The connection that carries a request. The server executes the requests of one connection in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Route {
    /// The background connection.
    #[default]
    Home,
    /// The connection on the callers' runtime.
    Near,
}

/// How a request is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendOptions {
    pub(crate) via: Route,
    pub(crate) timeout: Duration,
    /// How long a reply may be missing before another connection is tried.
    silence: Option<Duration>,
    /// The node of a cluster does not have the slot yet, and must reply all the same.
    asking: bool,
}

impl SendOptions {
    pub(crate) fn new(via: Route, timeout: Duration) -> Self {
        Self {
            via,
            timeout,
            silence: None,
            asking: false,
        }
    }

    pub(crate) fn background(timeout: Duration) -> Self {
        Self::new(Route::Home, timeout)
    }

    pub(crate) fn silence(self, silence: Duration) -> Self {
        Self {
            silence: Some(silence),
            ..self
        }
    }
}

/// A lock that an acquire asks for.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
}

/// A request for locks.
#[derive(Debug, Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) lease: Duration,
    /// 1 acquires free locks. A higher count re-enters locks that the owners have.
    pub(crate) count: u32,
    /// Whether an owner that finds its lock taken joins the wait queue.
    pub(crate) waits: bool,
}

/// The outcome of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Every owner holds its lock with the requested count. `tokens` has the first token of each claim's block.
    Granted {
        tokens: Few<u64>,
        /// Whether others wait for one of the locks.
        wanted: bool,
        sent_at: Time,
    },
    /// Nothing was acquired, because another owner has the lock of this claim. `ttl` is the rest of its lease,
    /// or `None` without an end. `in_line` is the claimant's place in the wait queue, if it joined that.
    Held {
        claim: usize,
        ttl: Option<Duration>,
        in_line: Option<Place>,
        sent_at: Time,
        /// Earlier grants up to these tokens are void.
        fences: Few<u64>,
        /// An earlier grant may still be taken back, so the owner must not be used again.
        spoilt: bool,
    },
    /// The owner of a further entry holds nothing.
    NotHeld,
}

/// A place in the wait queue of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Whether this is the first waiter. The first waiter asks again when the lock becomes free without a release.
    pub(crate) first: bool,
    /// Whether the store reports the next change of the lock by another client.
    pub(crate) watched: bool,
}

impl Place {
    /// A place behind the first waiter.
    pub(crate) const BEHIND: Self = Self {
        first: false,
        watched: true,
    };

    pub(crate) fn first(watched: bool) -> Self {
        Self {
            first: true,
            watched,
        }
    }
}

/// A request to lower an owner's count.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseRequest {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    /// The fence as the owner knows it, or 0.
    pub(crate) token: u64,
    /// Zero releases the lock.
    pub(crate) count: u32,
    /// How long a released lock stays taken without an owner.
    pub(crate) keep: Duration,
    /// The next local waiter.
    pub(crate) next: Option<Next>,
}

/// A waiter in the process that releases a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Done(Onward),
    NotHeld,
    /// The owner does not have the lock, and others have had it since. An earlier copy of the request may have been
    /// executed.
    MovedOn,
}

/// The outcome of a release for the next local waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Onward {
    /// The waiter has the lock.
    Granted(Grant),
    /// The waiter did not have the lock at this time, and is in the wait queue.
    InLine { since: Time, place: Place },
    /// There is no waiter, or it has to acquire the lock itself.
    Unknown,
}

/// A lock that was granted to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) block: TokenBlock,
    /// The lock was granted at this time or later.
    pub(crate) since: Time,
    /// How long the lock is granted for, without renewal.
    pub(crate) ttl: Duration,
    /// Whether others wait for the lock.
    pub(crate) wanted: bool,
}

/// The number of fencing tokens that a grant reserves.
const TOKEN_BLOCK: u64 = 16;

/// Fencing tokens that are reserved for an owner: `size` tokens from `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenBlock {
    pub(crate) first: u64,
    pub(crate) size: u64,
}

impl TokenBlock {
    /// No tokens.
    pub(crate) const EMPTY: Self = Self { first: 0, size: 0 };

    /// Returns the block of a grant, whose first token the store's fence shows.
    pub(crate) fn granted(first: u64) -> Self {
        Self {
            first,
            size: TOKEN_BLOCK,
        }
    }

    /// Returns the tokens of an extension that advanced the fence by `size` to `fence`. They lie one block beyond the
    /// fence.
    pub(crate) fn extension(fence: u64, size: u64) -> Self {
        if size == 0 {
            return Self::EMPTY;
        }
        Self {
            first: fence.saturating_add(TOKEN_BLOCK).saturating_sub(size),
            size,
        }
    }

    /// Returns the last token; 0 if there is none.
    pub(crate) fn last(self) -> u64 {
        self.first.saturating_add(self.size).saturating_sub(1)
    }

    /// Returns the value of the store's fence while this block is the latest.
    pub(crate) fn fence(self) -> u64 {
        (self.last() + 1).saturating_sub(TOKEN_BLOCK)
    }
}

impl Grant {
    /// Returns whether enough of the lease is left to renew it.
    pub(crate) fn is_fresh(&self, lease: Duration, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

/// An ownership in a batch of renewals.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
}

/// The outcomes of a batch of renewals, in its order.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) kept: Vec<Kept>,
    pub(crate) sent_at: Time,
}

/// The outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The lease was renewed.
    Yes,
    /// The same, and others wait for the lock.
    Wanted,
    /// The same, but these servers do not have it; see [`Store::mend`].
    NotOn(Servers),
    /// The ownership is lost.
    No,
    /// Too few servers replied.
    Unknown,
}

impl Kept {
    pub(crate) fn by_one(held: bool, wanted: bool) -> Self {
        match (held, wanted) {
            (true, false) => Self::Yes,
            (true, true) => Self::Wanted,
            (false, _) => Self::No,
        }
    }

    /// Returns whether the lease was renewed on all servers.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Yes | Self::Wanted)
    }
}

/// Some of the servers of a store, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Servers(pub(crate) u32);

impl Servers {
    pub(crate) fn has(self, server: usize) -> bool {
        self.0 & (1 << server) != 0
    }
}

/// An ownership that some servers lack.
#[derive(Debug, Clone)]
pub(crate) struct Mending {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) count: u32,
    pub(crate) token: u64,
}

/// The owner of a lock that stays taken for its `at_least` after its release.
pub(crate) const KEPT: &str = "kept";

/// A lock as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: String,
    pub(crate) count: u32,
    pub(crate) ttl: Option<Duration>,
    pub(crate) token: Option<u64>,
}

/// How long a lock is reserved for a waiter that has not confirmed its wait.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A notification of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// A waiter was granted its lock, for this long.
    Granted {
        key: Key,
        owner: OwnerId,
        block: TokenBlock,
        ttl: Duration,
        /// Whether others wait for it.
        wanted: bool,
    },
    /// Another client waits for the lock of this owner.
    Wanted { key: Key, owner: OwnerId },
    /// A waiter has to acquire again after this long.
    AskAgain {
        key: Key,
        owner: OwnerId,
        after: Duration,
    },
    /// Another connection changed this lock.
    Changed(Key),
    /// Any lock may have changed: everything was flushed, or notifications were missed.
    AllChanged,
    /// Any of these locks may have changed.
    SomeChanged(Which),
    /// Notifications are missed from now on.
    Disconnected,
}

/// A subset of all keys.
#[derive(Clone)]
pub(crate) struct Which(Arc<dyn Fn(&Key) -> bool + Send + Sync>);

impl Which {
    pub(crate) fn new(are_meant: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(are_meant))
    }

    pub(crate) fn all() -> Self {
        Self::new(|_| true)
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        (self.0)(key)
    }
}

impl std::fmt::Debug for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Which")
    }
}

impl PartialEq for Which {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Which {}

/// Handles notifications. Must not block.
pub(crate) type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// A store of ownerships. Every operation is atomic and idempotent: a repeated request changes nothing more, and has
/// the same outcome.
pub(crate) trait Store: Send + Sync + 'static {
    /// Returns the connection for a request of the present call.
    fn route(&self) -> Route {
        Route::Home
    }

    /// Returns the group of a key. Groups are renewed by different requests: they may lie in different places.
    fn group(&self, _key: &Key) -> u16 {
        0
    }

    /// Returns whether an acquire may undo its grants. If it is cancelled, some grants may remain.
    fn takes_back(&self) -> bool {
        false
    }

    /// Gives every owner its key with exactly `count` entries, or none of them. The remaining TTL only grows.
    ///
    /// A release hands the lock off to the first waiter and notifies its client. Waiters come before other owners.
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Answer<'a, Acquired>;

    /// Lowers the owner's count. At zero, the lock is handed off to the first waiter, and the next local waiter joins
    /// the queue. Without waiters, the next local waiter gets the lock. An owner that only waited leaves the queue.
    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        send: SendOptions,
    ) -> Answer<'a, Released>;

    /// Renews every lease in the batch whose owner still holds its lock. Never creates one.
    fn renew<'a>(&'a self, batch: &'a [Renewal], send: SendOptions) -> Answer<'a, Renewed>;

    /// Succeeds when enough replicas have these locks, which were granted for this lease.
    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        let _ = (claims, lease);
        Box::pin(async { Err(StoreError::no_replicas()) })
    }

    /// Copies an ownership to the servers that lack it, after a restart or an outage. Must not run while its count
    /// changes. The next renewal detects a failure.
    fn mend(&self, hold: Mending, on: Servers, timeout: Duration) -> BoxFuture<'_, ()> {
        let _ = (hold, on, timeout);
        Box::pin(std::future::ready(()))
    }

    /// Fails in a forked child of the process that made the store, because both would own the same locks.
    fn is_present(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns whether [`extend`](Self::extend) may reserve tokens.
    fn extends(&self) -> bool {
        false
    }

    /// Reserves about `tokens` further fencing tokens for an owner. Returns an empty block if there are none at
    /// present, and `None` if the owner does not have its lock.
    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        send: SendOptions,
    ) -> Answer<'a, Option<TokenBlock>> {
        let _ = (claim, tokens, send);
        Box::pin(std::future::ready(Ok(Some(TokenBlock::EMPTY))))
    }

    /// Describes the store for a message, without passwords.
    fn place(&self) -> String;

    /// Succeeds if enough servers for a lock reply. The time-out includes the wait for a connection.
    fn ping(&self, timeout: Duration) -> Answer<'_, ()>;

    /// Returns the lock's entry, if an owner holds it.
    fn inspect<'a>(&'a self, key: &'a Key, send: SendOptions) -> Answer<'a, Option<Entry>>;

    /// Takes a lock from its holder and hands it to the first waiter. Returns whether the lock was
    /// held.
    fn revoke(&self, _key: &Key) -> Result<bool, StoreError> {
        Err(StoreError::cannot_revoke())
    }

    /// Runs the background of the store, for as long as its client lives.
    fn background(self: Arc<Self>) -> BoxFuture<'static, ()>;
}
