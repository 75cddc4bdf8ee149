//! The types and constants of the store that a client's machine uses.

pub(crate) use rlock_proto::store::{Acquired, QueuePlace, Released, RenewalOutcome, TakenBy};

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 2;
