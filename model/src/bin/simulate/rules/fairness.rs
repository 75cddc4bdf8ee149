//! A client serves itself no more often than its limit while other clients wait.

use super::Rule;
use crate::{
    key::Key,
    machine::{By, Owner, Slot},
    plan::Part,
    world::World,
};

const IN_TURN: Rule = "a client serves itself no more often than its limit while others wait";

impl World {
    /// Checks how many calls of a client a lock has served in a row while others waited.
    pub(super) fn serves(&mut self, client: usize, key: &Key, owner: Owner, by: By) {
        let state = &self.clients[client];
        let others_wait = state.machine.slot(key).is_some_and(Slot::others_wait);
        let is_next = by == By::Local && others_wait;
        let waiters = state.notes.get(owner).map_or(0, |note| note.waiters);
        let most = waiters.min(self.plan.size(Part::LocalHandovers));
        let lock = self.lock(key);
        lock.handovers = match lock.handovers {
            (of, so_far) if is_next && of == client => (of, so_far + 1),
            _ => (client, usize::from(is_next)),
        };
        let (_, handovers) = lock.handovers;
        // The last one may have been served before it was known that others wait.
        if handovers > most + 1 {
            let what = format!("{key}: {handovers} calls in a row");
            self.breaks(IN_TURN, what);
        }
    }
}
