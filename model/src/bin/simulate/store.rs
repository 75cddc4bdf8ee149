//! The stores of the simulation, which are the code that ships: the embedded store's rules, and a quorum's decisions.

pub(crate) use rlock_proto::{
    quorum as decisions,
    store::{
        Acquired, Applied, Claim, GRACE, Notification, ReleaseRequest, Renewal, RenewalOutcome,
        Renewed, StoredLock,
    },
};

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 4;
