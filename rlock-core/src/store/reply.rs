//! What a store replies.

use std::time::Duration;

use crate::{few::Few, lease::Time, owner::OwnerId};

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
    /// or `None` without an end. `queued` is the claimant's place in the wait queue, if it joined that.
    Held {
        claim: usize,
        ttl: Option<Duration>,
        queued: Option<QueuePlace>,
        sent_at: Time,
        /// Earlier grants up to these tokens are void.
        fences: Few<u64>,
        /// An earlier grant may still be rolled back, so the owner must not be used again.
        retired: bool,
    },
    /// The owner of a further entry holds nothing.
    NotHeld,
}

/// A place in the wait queue of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// Whether this is the first waiter. The first waiter asks again when the lock becomes free without a release.
    pub(crate) first: bool,
    /// Whether the store reports the next change of the lock by another client.
    pub(crate) watched: bool,
}

impl QueuePlace {
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

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Done(HandOff),
    NotHeld,
    /// The owner does not have the lock, and others have had it since. An earlier copy of the request may have been
    /// executed.
    MovedOn,
}

/// The outcome of a release for the next local waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOff {
    /// The waiter has the lock.
    Granted(Grant),
    /// The waiter did not have the lock at this time, and is in the wait queue.
    Queued { since: Time, place: QueuePlace },
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

    /// Returns whether this is one of the tokens.
    pub(crate) fn has(self, token: u64) -> bool {
        self.first <= token && token <= self.last()
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

/// The outcomes of a batch of renewals, in its order.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) kept: Vec<RenewalOutcome>,
    pub(crate) sent_at: Time,
}

/// The outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalOutcome {
    /// The lease was renewed.
    Renewed,
    /// The same, and others wait for the lock.
    Wanted,
    /// The same, but these servers do not have it; see [`Store::repair`](super::Store::repair).
    NotOn(Servers),
    /// The ownership is lost.
    Lost,
    /// Too few servers replied.
    Unknown,
}

impl RenewalOutcome {
    pub(crate) fn by_one(held: bool, wanted: bool) -> Self {
        match (held, wanted) {
            (true, false) => Self::Renewed,
            (true, true) => Self::Wanted,
            (false, _) => Self::Lost,
        }
    }

    /// Returns whether the lease was renewed on all servers.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Renewed | Self::Wanted)
    }
}

/// Some of the servers of a store, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Servers(pub(crate) u32);

impl Servers {
    pub(crate) const MOST: usize = u32::BITS as usize;

    pub(crate) fn has(self, server: usize) -> bool {
        self.0 & (1 << server) != 0
    }
}

/// A lock as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: String,
    pub(crate) count: u32,
    pub(crate) ttl: Option<Duration>,
    /// The fence: the first token of the owner's latest block.
    pub(crate) token: Option<u64>,
    /// The owners that wait, in their order.
    pub(crate) queue: Vec<OwnerId>,
}

impl Entry {
    /// The owner of a key that is not a lock, but has the name of one. `inspect.lua` replies it.
    pub(crate) const NOT_A_HASH: &str = "(not a hash)";
}
