//! Extends, shortens and detaches simulated holds.

use std::time::Duration;

use crate::{
    clients::{Client, Held, Sent},
    known::Detached,
    lease::valid_until,
    machine::{Input, Step},
    world::{MS, World},
};

/// The reason in the note of an ownership after its client has detached it.
pub(crate) const DETACHED: &str = "was detached";

impl World {
    /// Draws one of the leases of the run.
    pub(crate) fn any_lease(&mut self) -> Duration {
        let leases = self.plan.leases();
        Duration::from_millis(leases[self.rng.usize(..leases.len())].into())
    }

    /// Sets the lease of a hold.
    pub(crate) fn extends(&mut self, client: usize, held: &Held) {
        let (entry, lease) = (held.entry.clone(), self.any_lease());
        let owner = entry.owner;
        if let Some(Step::Renew(renew)) = self.on(client, Input::Extend(entry, lease), None) {
            let Client { notes, clock, .. } = &mut self.clients[client];
            let note = notes.of(owner);
            (note.terms.lease, note.attempts) = (renew.lease, note.attempts + 1);
            // An extension is the first renewal after a hand-off, too.
            note.is_brief = false;
            let end = valid_until(clock.time(self.now), renew.lease);
            note.confirmed_until = note.confirmed_until.min(end);
            self.sends(client, Sent::Renew(renew));
        }
    }

    /// Leaves the lock of a hold to its lease. Returns whether the hold has ended by that.
    pub(crate) fn detaches(&mut self, client: usize, held: &Held) -> bool {
        let (key, owner) = (held.entry.key.clone(), held.entry.owner);
        let state = &self.clients[client];
        let own = state.machine.own(&key, owner);
        let valid = own.and_then(|own| own.valid_until(state.clock.time(self.now)).ok());
        let until = valid.map_or(0, |until| state.clock.at(until));
        let step = self.on(client, Input::Detach(held.entry.clone()), None);
        let is_detached = matches!(step, Some(Step::Detached { token }) if token >= held.token);
        if is_detached {
            self.clients[client].notes.of(owner).is_over = Some(DETACHED);
            // A renewal may be on its way.
            let longest = u64::from(self.plan.longest_lease()) * MS;
            self.moves(&key, self.now + 2 * longest);
            let detached = Detached {
                token: held.token,
                until,
            };
            let lock = self.locks.get_mut(&key).expect("the key exists");
            lock.detached = Some(detached);
        }
        is_detached
    }
}
