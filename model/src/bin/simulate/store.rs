//! What the simulation uses of the stores, as it ships: the rules of the embedded store, which tests compare with the Lua scripts,
//! and the decisions of a quorum.

pub(crate) use rlock_proto::{
    redlock as decisions,
    store::{
        Acquired, Applied, Claim, GRACE, Notification, ReleaseRequest, Renewal, RenewalOutcome,
        Renewed, StoredLock,
    },
};

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 4;
