//! Judges holds as they begin: who may be inside a lock together, which token comes next, and which access is stale.
//!
//! The simulator, the checker of recorded histories, and the tests of real clients have recorders of their own, but share these
//! rules. Each rule reads events in their order. The simulator knows that order. The checker derives it from the intervals that
//! processes recorded, so it passes a hold on at the earliest time that is certain.
//!
//! A recorder decides which faults excuse a broken rule, because that depends on how well it knows the times: the simulator
//! compares tokens with the largest one that a fault may have lost, and the checker compares intervals. Each also has its own
//! rules about times, such as the end of a lease or of a `min_hold`: the simulator reads them from machines and servers, which
//! nothing else can see, and the checker from what processes recorded.

mod fence;
mod holders;
mod tokens;

pub use self::{
    fence::Fence,
    holders::{excluded, may_enter, takes_too_many},
    tokens::Tokens,
};

use crate::mode::LockMode;

/// A hold, as a recorder knows it.
pub trait Holder {
    /// Returns its present mode. Permits are out of the largest number that any holder names.
    fn mode(&self) -> LockMode;

    /// Returns its fencing token.
    fn token(&self) -> u64;

    /// Returns whether both are the same hold to the store.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns whether both may have one token although they are different holds, because nothing orders them.
    fn may_share_token(&self, _other: &Self) -> bool {
        false
    }
}
