//! Restores locks at a member of a quorum that lacks them, after a majority has confirmed them.

use std::time::Duration;

use super::{Fences, LeaseHolder, LockState, State};
use crate::{key::Key, lease::Time, owner::OwnerId, store::Renewal};

impl<F: Fences> State<F> {
    /// Gives a lock to an owner that a majority of the members has confirmed, unless another owner has it. The request may
    /// come after the release of the owner, of which the member remembers the last one for each key.
    pub fn restore(&mut self, renewal: &Renewal, lease: Duration, now: Time) -> bool {
        let (key, owner) = (&renewal.claim.key, renewal.claim.owner);
        if self.was_released(key, owner, now) {
            return false;
        }
        self.share(key, owner, now);
        let admits = |lock: &mut LockState| !lock.has(owner) && lock.admits(owner.mode());
        if !self.live(key, now).is_none_or(admits) {
            return false;
        }
        self.queues.leave(key, owner);
        let lock = self
            .locks
            .entry(key.clone())
            .or_insert_with(LockState::empty);
        lock.fence = lock.fence.max(renewal.last_fence);
        lock.holders.push(LeaseHolder {
            count: renewal.count,
            ..LeaseHolder::new(owner, now + lease)
        });
        true
    }

    /// Remembers the release of an owner at a member of a quorum for this time.
    pub fn note_release(&mut self, key: &Key, owner: OwnerId, ttl: Duration, now: Time) {
        self.released.retain(|_, (_, until)| *until > now);
        self.released.insert(key.clone(), (owner, now + ttl));
    }

    /// Forgets all releases, as a server that restarts without data.
    pub fn forget_releases(&mut self) {
        self.released.clear();
        self.refused.clear();
    }

    /// Returns whether this owner, or the exclusive one that it was, is the last one that a member of a quorum released.
    #[must_use]
    pub fn was_released(&self, key: &Key, owner: OwnerId, now: Time) -> bool {
        let of = |owner: OwnerId| (owner.client(), owner.sequence());
        let last = self.released.get(key).filter(|(_, until)| *until > now);
        last.is_some_and(|(last, _)| of(*last) == of(owner))
    }
}
