//! The requests, replies and notifications of a server and its clients.

/// Milliseconds, by the server's clock.
pub type Millis = u64;
/// A fencing token.
pub type Token = u64;
/// The number of a grant, from which its fencing tokens follow.
pub type Fence = u64;
/// What is locked.
pub type Key = u8;

/// Which other holders of its key an owner tolerates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// None.
    #[default]
    Exclusive,
    /// Other shared holders.
    Shared,
    /// Other holders of permits, up to this number in all.
    Permits(u8),
}

impl Mode {
    /// Returns whether holders in both modes may have a lock at once.
    #[must_use]
    pub fn tolerates(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => true,
            (Self::Permits(one), Self::Permits(more)) => one.max(more) > 1,
            _ => false,
        }
    }
}

/// The identity of one ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The client.
    pub client: u8,
    /// The number of the ownership, unique for its client.
    pub sequence: u8,
    /// The mode, which never changes.
    pub mode: Mode,
}

/// One of the locks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// Its owner, which is new in an acquire.
    pub owner: Owner,
}

/// A request for locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acquire {
    /// The locks, all or none of which are granted.
    pub claims: Vec<Claim>,
    /// The lease.
    pub lease: Millis,
    /// The requested count.
    pub count: u8,
    /// Whether the owner joins the wait queue if the lock is taken.
    pub waits: bool,
    /// New fences are not below it, even if the clock is. Zero: no floor.
    pub floor: Fence,
}

/// The reply to an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acquired {
    /// Every owner holds its lock.
    Granted {
        /// The fence of each claim.
        fences: Vec<Fence>,
        /// Whether the wait queue of one of the locks has other owners.
        others_wait: bool,
    },
    /// Another owner holds one of the locks.
    Taken {
        /// The index of its claim.
        claim: usize,
        /// The remaining time, unless renewed.
        ttl: Millis,
        /// Whether the owner is queued.
        queued: bool,
        /// Whether the owner is the first waiter.
        first: bool,
        /// Grants up to these fences are void.
        fences: Vec<Fence>,
    },
    /// The owner requested a nested entry, but holds nothing.
    NotOwner,
}

/// A request that lowers a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The lock.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
    /// The fence that the lock has after its release, at least. Zero: unchanged.
    pub fence: Fence,
    /// The new count. Zero releases the lock.
    pub count: u8,
    /// How long the lock stays taken after the release.
    pub min_hold: Millis,
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Released {
    /// The release was executed.
    Done,
    /// The owner holds nothing.
    NotHeld,
}

/// A request to extend leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renew {
    /// The locks and their owners.
    pub renewals: Vec<Renewal>,
    /// The new lease of all, from now on.
    pub lease: Millis,
}

/// One of the locks of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewal {
    /// The lock and its owner.
    pub claim: Claim,
    /// The least new fence. The server sets one if its last fence is smaller. Zero: none is asked for.
    pub fence: Fence,
}

/// The reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewed {
    /// Whether the owner holds the lock.
    pub held: bool,
    /// Whether the owner holds the lock and the wait queue is not empty.
    pub wanted: bool,
    /// The new fence. Zero: unchanged.
    pub fence: Fence,
}

/// A message of the server without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Notification {
    /// The lock was handed off to a queued owner.
    Granted {
        /// The lock.
        key: Key,
        /// The owner.
        owner: Owner,
        /// The fence.
        fence: Fence,
        /// The time until the grant ends.
        ttl: Millis,
        /// Whether the wait queue is not empty after this step.
        others_wait: bool,
    },
    /// Another client waits for a lock: sent when the first waiter requests it.
    Wanted {
        /// The lock.
        key: Key,
        /// The owner that holds it.
        owner: Owner,
    },
    /// A queued owner should retry after a delay.
    Retry {
        /// The lock.
        key: Key,
        /// The owner.
        owner: Owner,
        /// The delay.
        after: Millis,
    },
}

impl Notification {
    /// Returns its lock.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Granted { key, .. } | Self::Wanted { key, .. } | Self::Retry { key, .. } => *key,
        }
    }

    /// Returns its owner.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Granted { owner, .. }
            | Self::Wanted { owner, .. }
            | Self::Retry { owner, .. } => *owner,
        }
    }
}

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// An owner.
    Owner(Owner),
    /// No owner: `min_hold` keeps the lock after its release.
    Kept,
}

/// The state of a lock on its server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The holders in ascending order, at least one.
    pub holders: Vec<Holder>,
    /// The count of entries.
    pub count: u8,
    /// The remaining time, unless renewed.
    pub ttl: Millis,
    /// The last fence.
    pub fence: Fence,
}

/// A fence that a server set for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fenced {
    /// The lock.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
    /// The fence.
    pub fence: Fence,
}

/// The effects of one step of a server, besides its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The notifications that it sends.
    pub notifications: Vec<Notification>,
    /// The grants, in order.
    pub grants: Vec<Fenced>,
    /// The new fences of renewals.
    pub renewed: Vec<Fenced>,
}
