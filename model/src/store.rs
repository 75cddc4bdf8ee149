//! The types and constants of the store that a client's machine uses, and the rules of the embedded store.

pub(crate) use rlock_proto::{
    embedded::Lock as StoredLock,
    store::{
        AcquireRequest, Acquired, Claim, Event, QueuePlace, ReleaseRequest, Released, Renewal,
        RenewalOutcome, TakenBy,
    },
};

/// The locks of a server.
pub(crate) type State = rlock_proto::embedded::State<crate::server::Fences>;

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 2;
