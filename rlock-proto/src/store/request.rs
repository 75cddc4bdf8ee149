//! What a client can ask a store for: acquire, set count, downgrade, release, renew.

use std::time::Duration;

use crate::{few::Few, key::Key, owner::OwnerId};

/// A lock and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The key of the lock.
    pub key: Key,
    /// The owner that asks for the lock or has it.
    pub owner: OwnerId,
}

/// A request that a call or the background of a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StoreRequest {
    /// Asks for locks.
    Acquire(AcquireRequest),
    /// Changes what an owner has.
    Change(Change),
}

/// A request that changes what an owner has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Sets the count of an owner.
    SetCount(SetCountRequest),
    /// Makes the exclusive lock of an owner a shared one.
    Downgrade(DowngradeRequest),
    /// Releases a lock.
    Release(ReleaseRequest),
}

impl Change {
    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::SetCount(set) => &set.key,
            Self::Downgrade(downgrade) => &downgrade.key,
            Self::Release(release) => &release.key,
        }
    }
}

/// A request for locks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireRequest {
    /// The locks, each with its owner.
    pub claims: Few<Claim>,
    /// How long the store keeps the locks without a renewal.
    pub lease: Duration,
    /// Whether an owner that finds its lock taken joins the wait queue.
    pub waits: bool,
}

/// A request to show this number of entries, and to keep the lock for another lease at least.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetCountRequest {
    /// The key of the lock.
    pub key: Key,
    /// The owner that has the exclusive lock.
    pub owner: OwnerId,
    /// The number of entries. The count is absolute, so a repeated request changes nothing.
    pub count: u32,
    /// How long the store keeps the lock from now on without a renewal, unless it keeps it for longer already.
    pub lease: Duration,
}

/// A request to share an exclusive lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DowngradeRequest {
    /// The key of the lock.
    pub key: Key,
    /// The owner in the shared mode. It has the lock in the exclusive one.
    pub owner: OwnerId,
    /// The last known fence of the lock, if the server may lack it or forget it soon; 0 leaves the lock's fence as it is.
    pub fence: u64,
}

/// A request to release a lock, or to leave its wait queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReleaseRequest {
    /// The key of the lock.
    pub key: Key,
    /// The owner that has the lock or waits for it.
    pub owner: OwnerId,
    /// The last known fence of the lock, if the server may lack it or forget it soon; 0 leaves the lock's fence as it is.
    pub fence: u64,
    /// How long a released lock stays taken without an owner.
    pub min_hold: Duration,
    /// Whether an acquire of the owner may still arrive, over another connection. A server that is not one of a quorum refuses
    /// it then. In Postgres, a session ends before the next one sends.
    pub refuses_late: bool,
}

impl ReleaseRequest {
    /// Returns the request to release a lock at once.
    #[must_use]
    pub fn of(claim: &Claim) -> Self {
        Self {
            key: claim.key.clone(),
            owner: claim.owner,
            fence: 0,
            min_hold: Duration::ZERO,
            refuses_late: false,
        }
    }
}

/// A request to renew a lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The lock and its owner.
    pub claim: Claim,
    /// The least new fence. The store sets one if its last fence is smaller; 0 asks for none.
    pub fence: u64,
    /// The last fence that the owner knows, if the store keeps it for longer, or restores the lock at members of a quorum;
    /// otherwise 0.
    pub last_fence: u64,
    /// Whether the store keeps the last fence for a further retention.
    pub keeps_fence: bool,
    /// The number of entries that a member of a quorum shows when it restores the lock.
    pub count: u32,
}

impl Renewal {
    /// Returns the request to renew a lease, and nothing else.
    #[must_use]
    pub fn of(claim: Claim) -> Self {
        Self {
            claim,
            fence: 0,
            last_fence: 0,
            keeps_fence: false,
            count: 1,
        }
    }
}
