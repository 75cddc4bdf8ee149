//! What a store replies to each request, and what it stores of a lock.

use std::time::Duration;

use crate::{few::Few, lease::Time, owner::OwnerId};

/// The outcome of an acquire.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// Every owner holds its lock. `fences` has the fence of each claim.
    Granted {
        /// The fence of each claim.
        fences: Few<u64>,
        /// Whether others wait for one of the locks.
        wanted: bool,
        /// The locks were granted at this time or later.
        sent_at: Time,
    },
    /// The request was refused, because another owner has the lock of this claim. In a cluster, locks of other slots may have been
    /// granted.
    Taken {
        /// The position of the claim in the request.
        claim: usize,
        /// The rest of the lease, or `None` without an end.
        ttl: Option<Duration>,
        /// The claimant's place in the wait queue, if it joined that.
        queued: Option<QueuePlace>,
        /// The request was sent at this time.
        sent_at: Time,
        /// For each claim, the fence up to which its earlier grants have ended. `None`: its owner may have the lock, which stays
        /// taken until the client releases it.
        past_fences: Few<Option<u64>>,
        /// An earlier grant may still be rolled back, so the owner must not be used again.
        retired: bool,
        /// Who has the lock.
        by: TakenBy,
    },
    /// The server has released the owner before, or a later one of its client, so the request is a late one that no call waits for.
    Outdated,
}

impl Acquired {
    /// Returns all fences in the reply.
    pub fn fences(&self) -> impl Iterator<Item = u64> {
        let (granted, past) = match self {
            Self::Granted { fences, .. } => (&fences[..], &[][..]),
            Self::Taken { past_fences, .. } => (&[][..], &past_fences[..]),
            Self::Outdated => (&[][..], &[][..]),
        };
        granted
            .iter()
            .copied()
            .chain(past.iter().copied().flatten())
    }
}

/// Who has a lock that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TakenBy {
    /// The store does not name the owner: one server never does, and a quorum names neither the holders of a shared lock,
    /// nor the owner whose `min_hold` keeps it.
    #[default]
    Unnamed,
    /// This owner has it.
    Owner(OwnerId),
    /// Several owners each have it on some servers of a quorum, and none of them on a majority.
    NoMajority,
}

/// A place in the wait queue of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueuePlace {
    /// Whether this is the first waiter. The first waiter asks again when the lock becomes free without a release.
    pub first: bool,
    /// Whether the store reports the next change of the lock by another client.
    pub watched: bool,
    /// When the waiter asks again by itself.
    pub asks: Asks,
}

/// When a waiter that was not notified asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asks {
    /// After a long time, because a notification may be lost.
    Late,
    /// Soon: the lock admits the waiter, and only earlier waiters keep it out, whose clients may be gone.
    Probing,
    /// After pauses that grow, because the store cannot notify the client.
    Polling,
}

impl Asks {
    /// Returns whether only earlier waiters keep the waiter out.
    #[must_use]
    pub fn probing(probes: bool) -> Self {
        if probes { Self::Probing } else { Self::Late }
    }
}

impl QueuePlace {
    /// A place behind the first waiter.
    pub const BEHIND: Self = Self {
        first: false,
        watched: true,
        asks: Asks::Late,
    };
}

/// The outcome of a [`Change`](super::Change).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Applied {
    /// The request has, or had already, its effect.
    Done,
    /// The owner does not have the lock. An earlier copy of a release may have released it.
    NotHeld,
}

/// A lock that was granted to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The fence of the grant.
    pub fence: u64,
    /// The lock was granted at this time or later.
    pub since: Time,
    /// How long the lock is granted for, without renewal.
    pub ttl: Duration,
    /// Whether others wait for the lock.
    pub wanted: bool,
}

impl Grant {
    /// Returns whether enough of the lease is left to renew it.
    #[must_use]
    pub(crate) fn is_fresh(&self, lease: Duration, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

/// The outcomes of a batch of renewals, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renewed {
    /// The outcome of each renewal.
    pub kept: Vec<RenewalOutcome>,
    /// The renewals were sent at this time.
    pub sent_at: Time,
}

/// The outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RenewalOutcome {
    /// The lease was renewed.
    Held {
        /// Whether others wait for the lock.
        wanted: bool,
        /// The new fence; 0 without one.
        fence: u64,
    },
    /// The ownership is lost.
    Lost,
    /// Too few servers replied.
    Unknown,
}

/// A lock as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoredLock {
    /// The first holder.
    pub owner: String,
    /// The count of the first holder.
    pub count: u32,
    /// The rest of the lease, or `None` without an end.
    pub ttl: Option<Duration>,
    /// The last fence, if the store has one. On a quorum, the largest one.
    pub fence: Option<u64>,
    /// On a quorum, the fences that other members set for the same hold.
    pub other_fences: Vec<u64>,
    /// The owners that wait, in their order.
    pub queue: Vec<OwnerId>,
    /// The number of holders.
    pub holders: usize,
    /// How many permits the holders take together.
    pub permits_taken: u64,
    /// The other holders, as far as they are known.
    pub others: Vec<OwnerId>,
}

impl StoredLock {
    /// The owner of a key that is not a lock, but has the name of one. `inspect.lua` replies it.
    pub const NOT_A_HASH: &str = "(not a hash)";

    /// Returns whether the store, or a member of a quorum, set this fence for the present hold.
    #[must_use]
    pub fn has_fence(&self, fence: u64) -> bool {
        self.fence == Some(fence) || self.other_fences.contains(&fence)
    }

    /// Returns whether this owner is one of the holders.
    #[must_use]
    pub fn has(&self, owner: &str) -> bool {
        self.owner == owner || self.others.iter().any(|other| other.to_string() == owner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::mode::LockMode;

    #[test]
    fn a_lock_has_each_of_its_holders_and_the_fences_of_each_member() {
        let [first, other, none] =
            [1, 2, 3].map(|number| OwnerId::new(Uuid::nil(), number, LockMode::Shared));
        let lock = StoredLock {
            owner: first.to_string(),
            count: 1,
            ttl: None,
            fence: Some(9),
            other_fences: vec![7],
            queue: Vec::new(),
            holders: 2,
            permits_taken: 0,
            others: vec![other],
        };
        assert_eq!(
            [7, 8, 9].map(|fence| lock.has_fence(fence)),
            [true, false, true]
        );
        let has = [first, other, none].map(|owner| lock.has(&owner.to_string()));
        assert_eq!(has, [true, true, false]);
    }
}
