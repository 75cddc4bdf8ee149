//! The tokens of each fence that the server set, by which the resource orders the holds.

use crate::owner::OwnerId;

/// The tokens that an owner got with one fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenRange {
    /// The number of the key.
    pub(super) key: u8,
    pub(super) owner: OwnerId,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl TokenRange {
    pub(super) fn has(&self, owner: OwnerId, token: u64) -> bool {
        self.owner == owner && (self.first..=self.last).contains(&token)
    }

    pub(super) fn covers(&self, key: u8, token: u64) -> bool {
        self.key == key && (self.first..=self.last).contains(&token)
    }
}
