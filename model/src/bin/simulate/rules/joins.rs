//! No call joins a shared hold once its client knows that other clients wait for the lock.

use super::{About, Rule};
use crate::{
    key::Key,
    machine::{Input, Machine, Owner, Phase, Slot},
    world::World,
};

const NO_LATE_JOIN: Rule = "no call joins a hold once its client knows that others wait";

/// Returns the holds for which other clients wait, with their numbers of entries, before a call begins outside of any hold.
pub(super) fn wanted_holds(machine: &Machine, input: &Input) -> Vec<(Key, Owner, u32)> {
    if !matches!(input, Input::Acquire { inside, .. } if inside.is_empty()) {
        return Vec::new();
    }
    let wanted = machine.slots().filter(|slot| slot.others_wait());
    let hold = |slot: &Slot| {
        let own = slot.current().filter(|own| own.phase() == Phase::Held)?;
        Some((slot.key().clone(), own.owner, own.entries()))
    };
    wanted.filter_map(hold).collect()
}

impl World {
    /// Checks that no call has joined a hold which other clients wait for.
    pub(super) fn joins_in_time(&mut self, client: usize, about: &About) {
        let machine = &self.clients[client].machine;
        let has_more = |(key, owner, entries): &&(Key, Owner, u32)| {
            let own = machine.own(key, *owner);
            own.is_some_and(|own| own.entries() > *entries)
        };
        if let Some((key, owner, _)) = about.wanted_holds.iter().find(has_more) {
            let what = format!("{key}: a call of client {client} joins {owner}");
            self.breaks(NO_LATE_JOIN, what);
        }
    }
}
