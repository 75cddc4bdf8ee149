//! A lock of the embedded store: who may hold it together with others, and when it is free.

use crate::{few::Few, lease::Time, mode::LockMode, owner::OwnerId};

/// A lock with at least one holder. All of them have the same mode, and only an exclusive one is alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The holders, in the order of their grants.
    pub holders: Few<LeaseHolder>,
    /// The fence of the last grant.
    pub fence: u64,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseHolder {
    /// Who holds it.
    pub owner: OwnerId,
    /// How many entries it has.
    pub count: u32,
    /// When its lease ends.
    pub expires: Time,
}

impl LeaseHolder {
    /// An owner that holds a lock until its lease ends, with one entry.
    pub(super) fn new(owner: OwnerId, expires: Time) -> Self {
        Self {
            owner,
            count: 1,
            expires,
        }
    }
}

impl LockState {
    pub(super) fn new(holders: Few<LeaseHolder>, fence: u64) -> Self {
        Self { holders, fence }
    }

    /// A lock that gets its first holder at once.
    pub(super) fn empty() -> Self {
        Self::new(Few::new(), 0)
    }

    pub(super) fn has(&self, owner: OwnerId) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// Returns whether an owner in this mode may hold the lock together with the other holders.
    pub(super) fn admits(&self, mode: LockMode) -> bool {
        let present = self.holders.first().map(|holder| holder.owner.mode());
        match (mode, present) {
            (_, None) | (LockMode::Shared, Some(LockMode::Shared)) => true,
            (LockMode::Permits { take, of }, Some(LockMode::Permits { .. })) => {
                self.permits_taken() + u64::from(take) <= of.into()
            }
            _ => false,
        }
    }

    /// Returns how many permits the holders take together.
    pub(super) fn permits_taken(&self) -> u64 {
        let each = (self.holders.iter()).map(|holder| holder.owner.mode().permits_taken());
        each.map(u64::from).sum()
    }

    /// Returns when the last holder's lease ends.
    #[must_use]
    pub fn expires(&self) -> Time {
        let each = self.holders.iter().map(|holder| holder.expires);
        each.max().unwrap_or_default()
    }

    /// Returns when the lock may be free for this owner: a permit as soon as one lease has ended.
    pub(super) fn free_at(&self, owner: OwnerId) -> Time {
        let mode = self.holders.first().map(|holder| holder.owner.mode());
        match (owner.mode(), mode) {
            (LockMode::Permits { .. }, Some(LockMode::Permits { .. })) => {
                let each = self.holders.iter().map(|holder| holder.expires);
                each.min().unwrap_or_default()
            }
            _ => self.expires(),
        }
    }
}
