//! The types and constants of the store that a client's machine uses.

use std::time::Duration;

pub(crate) use self::sources::reply::{
    Acquired, Grant, QueuePlace, Released, RenewalOutcome, TakenBy,
};

/// How long a lock is reserved for a waiter that has not confirmed its wait.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 2;

#[expect(dead_code, reason = "the model uses a part of them")]
#[path = "../../rlock-core/src/store"]
mod sources {
    pub(crate) mod reply;
}
