//! Where locks live. Everything above speaks this trait; only what is below knows a server.

pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;

use std::{error::Error, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{error::LockError, few::Few, key::Key, lease::Time, owner::OwnerId};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The way that a request takes, or a message to a waiter. Requests that take the same are executed in
/// the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Route {
    /// The client's own background.
    #[default]
    Home,
    /// The runtime of the caller.
    Near,
}

/// One of the locks that an acquire asks for.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
}

/// What an acquire was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Every owner holds its lock with the count that was asked for. For each claim the first token of its block.
    Granted {
        tokens: Few<u64>,
        /// Whether others wait for one of the locks.
        wanted: bool,
        sent_at: Time,
    },
    /// Nothing was acquired, because another owner holds the lock of this claim. `ttl` is the rest of its
    /// lease, or `None` for a lock without an end. `in_line` is the claimant's place, if it joined the wait
    /// queue.
    Held {
        claim: usize,
        ttl: Option<Duration>,
        in_line: Option<Place>,
        sent_at: Time,
        /// No grant of these tokens, or of earlier ones, is worth anything any more.
        fences: Few<u64>,
        /// What was given before may still be taken back: the owner is not to ask again.
        spoilt: bool,
    },
    /// A further entry was asked for by an owner that holds nothing.
    NotHeld,
}

/// A place in the store's wait queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Whether this is the first known waiter. The first waiter asks when the lock becomes free
    /// without a release.
    pub(crate) first: bool,
    /// Whether the store reports the next change that another client makes to the lock.
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

/// What an owner is to have less of.
#[derive(Debug, Clone)]
pub(crate) struct Release<'a> {
    pub(crate) key: &'a Key,
    pub(crate) owner: OwnerId,
    /// The fence as the owner knows it; 0 if it has none.
    pub(crate) token: u64,
    /// Zero gives the lock back.
    pub(crate) count: u32,
    /// How long a lock that is given back stays taken, by nobody.
    pub(crate) keep: Duration,
    /// Who waits for the lock in the same process.
    pub(crate) next: Option<Next>,
}

/// A waiter of the process that gives a lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
}

/// What a release was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Done(Onward),
    NotHeld,
    /// Not held, and others have held it since: if an earlier copy of the request was lost, it may
    /// have been done.
    MovedOn,
}

/// What became of the waiter that a release named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Onward {
    /// It has the lock.
    Granted(Grant),
    /// It did not have it at this time, and stands in line.
    InLine { since: Time, place: Place },
    /// There is none, or it is to ask for itself.
    Unknown,
}

/// A lock that an owner was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) block: TokenBlock,
    /// It was given at this time or later,
    pub(crate) since: Time,
    /// and then for this long.
    pub(crate) ttl: Duration,
    /// Whether others wait for it.
    pub(crate) wanted: bool,
}

/// The number of fencing tokens that a grant reserves.
const TOKEN_BLOCK: u64 = 16;

/// Fencing tokens that are reserved for an owner: as many as `size`, from the `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenBlock {
    pub(crate) first: u64,
    pub(crate) size: u64,
}

impl TokenBlock {
    /// No tokens.
    pub(crate) const EMPTY: Self = Self { first: 0, size: 0 };

    /// The block of a grant. The store's fence shows the first token.
    pub(crate) fn granted(first: u64) -> Self {
        Self {
            first,
            size: TOKEN_BLOCK,
        }
    }

    /// The tokens of an extension that advanced the fence to this by so many: tokens are reserved a block beyond the
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

    /// Returns what the store's fence shows while this block is the latest.
    pub(crate) fn fence(self) -> u64 {
        (self.last() + 1).saturating_sub(TOKEN_BLOCK)
    }
}

impl Grant {
    /// Whether so much of it is left that there is time to renew it.
    pub(crate) fn is_fresh(&self, lease: Duration, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

/// One hold in a batch of renewals.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
}

/// What a batch of renewals was answered, in its order.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) kept: Vec<Kept>,
    pub(crate) sent_at: Time,
}

/// What became of a hold that was to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It has its whole lease.
    Yes,
    /// The same, and others wait for the lock.
    Wanted,
    /// It has, but these servers do not know of it; see [`Store::mend`].
    NotOn(Servers),
    /// It is lost.
    No,
    /// Too few servers answered to tell.
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

    /// Whether it has its whole lease, on all servers.
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

/// A hold that some servers are to have as the others do.
#[derive(Debug, Clone)]
pub(crate) struct Mending {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) count: u32,
    pub(crate) token: u64,
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

/// For how long a lock is given to a waiter that has not said yet that it is there.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// What a store tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// An owner that stood in line was given its lock, for this long.
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
    /// An owner that stands in line does well to ask again after this long.
    AskAgain {
        key: Key,
        owner: OwnerId,
        after: Duration,
    },
    /// Another connection changed this lock.
    Changed(Key),
    /// Any lock may have changed: everything was flushed, or news were missed.
    AllChanged,
    /// Any of these locks may have changed.
    SomeChanged(Which),
    /// From here on news are missed.
    Disconnected,
}

/// Some of all keys.
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

/// Takes news; must not block.
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
    pub(crate) fn no_answer(after: Duration) -> Self {
        Self::ambiguous(format!("no answer within {after:?}"))
    }

    /// Too few servers of a quorum replied.
    pub(crate) fn no_majority() -> Self {
        Self::ambiguous("too few servers of the quorum answered")
    }

    /// No answer yet, while others answered.
    pub(crate) fn silent() -> Self {
        Self::ambiguous("no answer in time")
    }

    /// An answer, but after the lease that it grants had ended.
    pub(crate) fn late() -> Self {
        Self::ambiguous("the answer came after the lease that it grants had ended")
    }

    /// This kind of store cannot wait for any.
    pub(crate) fn no_replicas() -> Self {
        Self::unsupported(
            "`replicas` is for one server, for the master that Sentinels know, or for a Redis Cluster",
        )
    }

    /// The background ended before all locks were released.
    pub(crate) fn not_given_back() -> Self {
        Self::ambiguous(std::io::Error::from(std::io::ErrorKind::TimedOut))
    }

    /// The store cannot do this, and was not asked.
    fn unsupported(what: &str) -> Self {
        let what: Box<dyn Error + Send + Sync> = what.into();
        Self {
            transient: false,
            maybe_executed: false,
            foreign: false,
            source: what.into(),
        }
    }

    /// Only the embedded store can revoke a lock.
    fn cannot_revoke() -> Self {
        Self::unsupported(
            "only the embedded store takes a lock from its holder; on a server, delete the key",
        )
    }

    /// The background is on the user's runtime, which did not complete the request in time.
    pub(crate) fn stands_still() -> Self {
        Self::ambiguous(
            "the Tokio runtime of `LockClientBuilder::runtime` is not driven; drive it, or leave the option out, so \
             that the client uses its own thread",
        )
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
    /// The best way for a request of the present call.
    fn route(&self) -> Route;

    /// By which way the present call is told best of what it waits for.
    fn told_by(&self) -> Route {
        Route::Home
    }

    /// The same for what was asked for before: a place in line is not given up while the connection that
    /// it is told by is being replaced.
    fn still_told_by(&self) -> Route {
        self.told_by()
    }

    /// Locks of different groups are renewed by different requests: they may lie in different places,
    /// of which one may be gone.
    fn group(&self, _key: &Key) -> u16 {
        0
    }

    /// Whether an acquire may take back what it was given: one that is cancelled may leave that half done.
    fn takes_back(&self) -> bool {
        false
    }

    /// Makes every owner hold its key with exactly `count` entries, or none of them: 1 takes free
    /// locks, more enter a lock that the owner holds. The remaining TTL only grows.
    ///
    /// With `waits`, the owner of a lock that is taken stands in line: the release that comes to it
    /// gives it the lock, and its client is told, if it was ever told at all. Those in line come
    /// before others.
    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: (Route, Duration),
    ) -> Answer<'a, Acquired>;

    /// Lowers the owner's entries. At zero the lock goes to the first in line, and the next waiter of the same
    /// process joins the line, or has the lock if nobody waits; an owner that only stood in line leaves it.
    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released>;

    /// Extends every lease in the batch whose owner still holds its lock. Never creates one.
    /// Nothing heard for as long as `silence` means that another connection may do better.
    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed>;

    /// Succeeds when as many replicas as the client asks for have the locks that these owners were granted
    /// for this lease.
    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        let _ = (claims, lease);
        Box::pin(async { Err(StoreError::no_replicas()) })
    }

    /// Gives a hold to those servers of several which do not know of it: they were restarted, or could
    /// not be reached. Not while its count changes; what fails is left to the next renewal.
    fn mend(&self, hold: Mending, on: Servers, timeout: Duration) -> BoxFuture<'_, ()> {
        let _ = (hold, on, timeout);
        Box::pin(std::future::ready(()))
    }

    /// Fails in a process that was forked off the one that made the store: both would hold what either holds.
    fn is_present(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether [`extend`](Self::extend) may reserve tokens.
    fn extends(&self) -> bool {
        false
    }

    /// Reserves about as many further fencing tokens for an owner. Returns an empty block if there are none at present,
    /// and `None` if the owner does not hold its lock.
    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        timeout: Duration,
    ) -> Answer<'a, Option<TokenBlock>> {
        let _ = (claim, tokens, timeout);
        Box::pin(std::future::ready(Ok(Some(TokenBlock::EMPTY))))
    }

    /// Describes the store for a message, without passwords.
    fn place(&self) -> String;

    /// Succeeds if as many servers reply as a lock needs. The time-out includes the wait for a
    /// connection.
    fn ping(&self, timeout: Duration) -> Answer<'_, ()>;

    /// Who holds the lock.
    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>>;

    /// Takes a lock from its holder and hands it to the first waiter. Returns whether the lock was
    /// held.
    fn revoke(&self, _key: &Key) -> Result<bool, StoreError> {
        Err(StoreError::cannot_revoke())
    }

    /// What the store does in the background; runs for as long as its client lives.
    fn background(self: Arc<Self>) -> BoxFuture<'static, ()>;
}
