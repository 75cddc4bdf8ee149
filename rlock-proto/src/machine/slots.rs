//! Where the state of each key lies, and when an unused slot goes to another key. A call looks its slots up once,
//! because its entries and requests name their slots from then on.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Index, IndexMut},
};

use super::{Common, Owner, SlotId, ownership::Ownership, slot::Slot, timer::Target};
use crate::key::Key;

/// How many unused slots are kept, so that the next call for their key need not make a new one.
const MOST_IDLE: usize = 64;

/// All slots of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slots {
    by_key: BTreeMap<Key, SlotId>,
    all: Vec<Option<Box<Slot>>>,
    free: Vec<SlotId>,
    /// Slots that became unused, in this order. Some may be in use again.
    idle: VecDeque<SlotId>,
}

impl Slots {
    /// Returns the slot of a key for a call, which keeps it until [`remove_user`](Self::remove_user).
    pub(super) fn add_user(&mut self, key: &Key) -> SlotId {
        let id = self.slot_of(key);
        let slot = &mut self[id];
        slot.users += 1;
        if !slot.key.is_hidden() {
            slot.show_as(key);
        }
        id
    }

    /// Removes a call from those that use a slot.
    pub(super) fn remove_user(&mut self, id: SlotId) {
        self[id].users -= 1;
    }

    /// Returns the slot of a key, which may be new.
    pub(super) fn slot_of(&mut self, key: &Key) -> SlotId {
        if let Some(id) = self.by_key.get(key) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            let last = u32::try_from(self.all.len() - 1);
            SlotId(last.expect("fewer than 2^32 keys are in use"))
        });
        self.by_key.insert(key.clone(), id);
        self.all[id.0 as usize] = Some(Box::new(Slot::new(id, key.clone())));
        id
    }

    /// Returns the slot of a key that the client uses.
    pub(super) fn find(&self, key: &Key) -> Option<SlotId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.all.get(id.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.all.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Returns the ownership of a hold, if it still exists.
    pub(super) fn own(&self, id: SlotId, owner: Owner) -> Option<&Ownership> {
        self.get(id)?.find(owner)
    }

    /// Returns the ownership of an entry, or of a request, if it still exists. An owner is never used again, so the slot
    /// of another key has none with this number.
    pub(super) fn own_mut(&mut self, id: SlotId, owner: Owner) -> Option<&mut Ownership> {
        self.get_mut(id)?.find_mut(owner)
    }

    /// Returns all slots.
    pub(super) fn ids(&self) -> Vec<SlotId> {
        let slots = (0..).zip(&self.all);
        let used = slots.filter(|(_, slot)| slot.is_some());
        used.map(|(number, _)| SlotId(number)).collect()
    }

    /// Returns the slots that are used, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.by_key.values().filter_map(|id| self.get(*id));
        slots.filter(|slot| !slot.is_unused())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.all.iter_mut().flatten().map(|slot| &mut **slot)
    }

    /// Lists a slot if it is unused. If the list is full, its first slot is forgotten, unless that is in use again.
    pub(super) fn list(&mut self, id: SlotId, cx: &mut Common) {
        if let Some(slot) = self.get_mut(id)
            && slot.is_unused()
            && !std::mem::replace(&mut slot.is_listed, true)
        {
            self.idle.push_back(id);
            if self.idle.len() > MOST_IDLE
                && let Some(oldest) = self.idle.pop_front()
            {
                self.forget(oldest, cx);
            }
        }
    }

    fn forget(&mut self, id: SlotId, cx: &mut Common) {
        let Some(slot) = self.get_mut(id) else {
            return;
        };
        slot.is_listed = false;
        if slot.is_unused() {
            cx.schedule.remove(Target::Slot(id), &mut slot.due);
            let slot = self.all[id.0 as usize].take();
            slot.and_then(|slot| self.by_key.remove(&slot.key));
            self.free.push(id);
        }
    }
}

/// The slot of a call, which exists as long as the call.
impl Index<SlotId> for Slots {
    type Output = Slot;

    fn index(&self, id: SlotId) -> &Slot {
        self.get(id).expect("a call uses the slot")
    }
}

impl IndexMut<SlotId> for Slots {
    fn index_mut(&mut self, id: SlotId) -> &mut Slot {
        self.get_mut(id).expect("a call uses the slot")
    }
}
