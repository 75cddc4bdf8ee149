//! The questions that a machine answers without changing: who has which lock, who waits, and whether the client may end.

use std::time::Duration;

use super::{
    CallId, Entry, Hold, Machine, Owner, Ownership, Slot, SlotId, Time, Timer, call::Work,
};
use crate::{key::Key, mode::LockMode};

impl Machine {
    /// Returns when the next deadline comes.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        Some(self.cx.schedule.first()?.0)
    }

    /// Returns the next deadline, and what it is for. The machine may look earlier than it has to.
    #[must_use]
    pub fn next_timer(&self) -> Option<(Time, Timer)> {
        self.cx.schedule.first()
    }

    /// Returns an ownership.
    #[must_use]
    pub fn own(&self, key: &Key, owner: Owner) -> Option<&Ownership> {
        self.slots.get(self.slots.find(key)?)?.find(owner)
    }

    /// Returns an ownership whose slot is known, from one of its entries.
    #[must_use]
    pub fn own_at(&self, slot: SlotId, owner: Owner) -> Option<&Ownership> {
        self.slots.own(slot, owner)
    }

    /// Returns the slot of a key that the client uses.
    #[must_use]
    pub fn slot(&self, key: &Key) -> Option<&Slot> {
        let slot = self.slots.get(self.slots.find(key)?)?;
        (!slot.is_unused()).then_some(slot)
    }

    /// Returns the key of the lock that another client has, if this call has the turn for it and waits.
    #[must_use]
    pub fn contended(&self, id: CallId) -> Option<&Key> {
        let Work::Acquire(call) = &self.calls.get(&id)?.work else {
            return None;
        };
        let mut slots = call.parts.iter().map(|part| &self.slots[part.slot]);
        let slot = slots.find(|slot| {
            let own = slot.current().filter(|_| slot.line.has_turn(id));
            own.is_some_and(|own| own.standing().is_waiting())
        });
        Some(&slot?.key)
    }

    /// Returns how long a lock is kept for a call that is not being polled.
    #[must_use]
    pub fn unpolled(&self, key: &Key, now: Time) -> Option<Duration> {
        let slot = self.slots.get(self.slots.find(key)?)?;
        slot.unpolled(&self.calls, now)
    }

    /// Returns the slots of all keys that the client uses.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Returns the ownerships of all keys.
    pub fn ownerships(&self) -> impl Iterator<Item = &Ownership> {
        self.slots.iter().flat_map(|slot| slot.ownerships.iter())
    }

    /// Returns whether no call or hold is left.
    pub fn is_drained(&self) -> bool {
        !self.is_called() && !self.ownerships().any(Ownership::is_owned)
    }

    /// Returns whether no call is left, and no body runs.
    pub fn is_quiet(&self) -> bool {
        let mut holds = self.ownerships().filter_map(Ownership::hold);
        !self.is_called() && !holds.any(Hold::has_body)
    }

    /// Returns whether a call is left that may still have a lock. A call that was refused only has to learn of it.
    fn is_called(&self) -> bool {
        self.calls.values().any(|call| !call.is_refused())
    }

    /// Returns whether everything is released.
    #[must_use]
    pub fn is_released(&self) -> bool {
        !self.ownerships().any(Ownership::is_releasing)
    }

    /// Returns how many other entries of its hold need the exclusive lock of this entry.
    #[must_use]
    pub fn others(&self, entry: &Entry) -> u32 {
        let own = self.own_at(entry.slot, entry.owner);
        let own = own.filter(|own| own.has(entry.number) && own.used() == LockMode::Exclusive);
        own.map_or(0, |own| own.entries() - 1)
    }
}
