//! The server counts the entries of a hold, and knows its mode.

use super::{Rule, stored_by};
use crate::{
    key::Key,
    machine::Phase,
    mode::LockMode,
    plan::{Effect, Part},
    world::World,
};

const COUNTED: Rule = "the server counts the entries";

impl World {
    /// Checks that a server knows the entries and the mode of a hold whose client has sent all of its counts.
    pub(super) fn audit_counts(&mut self, server: usize, key: &Key) {
        let Some(stored) = self.stored(server, key) else {
            return;
        };
        let Some(id) = stored_by(&stored.owner) else {
            return;
        };
        let holder = self.clients.iter().find(|client| id.is_of(client.id));
        let Some((holder, own)) =
            holder.and_then(|holder| Some((holder, holder.machine.own(key, id.sequence())?)))
        else {
            return;
        };
        // No request of the client is on its way. It tells the store nothing about a lock that is lost.
        let is_told = own.phase() == Phase::Held && own.is_told(true) && holder.is_idle();
        let is_valid = own.valid_until(holder.clock.time(self.now)).is_ok();
        if !(is_told && is_valid) || self.is_quorum() || self.plan.may(Effect::Repeats) {
            return;
        }
        // The client tells the store of a downgrade as of a count.
        if (own.mode, id.mode()) == (LockMode::Shared, LockMode::Exclusive) {
            let what = format!("{key}: server {server} is not told of a downgrade");
            return self.breaks(COUNTED, what);
        }
        let is_counted = own.used() == LockMode::Exclusive && self.plan.has(Part::CountsEntries);
        if is_counted && own.entries() != stored.count {
            let (entries, count) = (own.entries(), stored.count);
            let what = format!("{key}: {entries} entries, and {count} on the server");
            self.breaks(COUNTED, what);
        }
    }
}
