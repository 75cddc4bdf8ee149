//! What a store is asked for.

use std::{sync::Arc, time::Duration};

use crate::{key::Key, owner::OwnerId};

/// How a request is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendOptions {
    pub(crate) timeout: Duration,
    /// An earlier request of the owner has no reply. The server must execute this one after it.
    pub(crate) in_doubt: bool,
    /// How long a reply may be missing before another connection is tried.
    pub(super) silence: Option<Duration>,
    /// The node of a cluster does not have the slot yet, and must reply all the same.
    pub(super) asking: bool,
}

impl SendOptions {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            in_doubt: false,
            silence: None,
            asking: false,
        }
    }

    pub(crate) fn in_doubt(self, in_doubt: bool) -> Self {
        Self { in_doubt, ..self }
    }

    pub(crate) fn silence(self, silence: Duration) -> Self {
        Self {
            silence: Some(silence),
            ..self
        }
    }
}

/// A lock and its owner.
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

/// A request to lower an owner's count.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseRequest {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    /// The last known fence of the lock, if the server may lack it or forget it soon; 0 leaves the lock's fence as it is.
    pub(crate) fence: u64,
    /// Zero releases the lock.
    pub(crate) count: u32,
    /// How long a released lock stays taken without an owner.
    pub(crate) at_least: Duration,
}

impl ReleaseRequest {
    /// Returns the request to release a lock at once.
    pub(crate) fn whole(claim: &Claim) -> Self {
        Self {
            key: claim.key.clone(),
            owner: claim.owner,
            fence: 0,
            count: 0,
            at_least: Duration::ZERO,
        }
    }
}

/// A request to renew a lease.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) claim: Claim,
    /// The least new fence. The store sets one if its last fence is smaller; 0 asks for none.
    pub(crate) fence: u64,
}
