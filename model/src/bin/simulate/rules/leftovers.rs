//! Nothing is left at the end, and during a run no server keeps a lock for an owner that is gone.

use std::time::Duration;

use super::{Rule, stored_by};
use crate::{
    clients::{Client, Life},
    extensions::DETACHED,
    key::Key,
    plan::{Effect, Part},
    strikes::LONGEST_PAUSE,
    world::{CLOCK_STEP, MS, World},
};

const NOTHING_LEFT: Rule = "nothing is left at the end";

/// How long a server may keep a lock for an owner that its client does not know: it was handed off to a waiter that had
/// gone.
const LONGEST_ORPHANED: u64 = 1_600 * MS;

impl World {
    /// Checks that clients and servers have nothing left at the end of a run.
    pub(crate) fn look_at_the_end(&mut self) {
        // The locks of clients that are gone end with their leases, by the clocks of the servers.
        let now = self.now + u64::from(self.plan.longest_lease()) * MS + 2 * CLOCK_STEP;
        let is_left = |client: &&Client| {
            client.machine.slots().next().is_some() || !client.machine.is_drained()
        };
        let machine = self
            .clients
            .iter()
            .find(is_left)
            .map(|client| format!("{:#?}", client.machine));
        let held = self
            .servers
            .iter()
            .map(|server| server.state.held(server.time(now)));
        let held: Vec<Vec<Key>> = held.collect();
        if machine.is_some() || held.iter().any(|keys| !keys.is_empty()) {
            let what = format!("locks {held:?}, {}", machine.unwrap_or_default());
            self.breaks(NOTHING_LEFT, what);
        }
    }

    /// Checks that a server does not keep a lock for an owner that its client has forgotten.
    pub(super) fn audit_leftovers(&mut self, server: usize, key: &Key) {
        let now = self.now;
        let owner = (self.stored(server, key)).map_or(String::new(), |stored| stored.owner);
        let stored = stored_by(&owner);
        let holder = stored.and_then(|id| {
            let client = self.clients.iter().find(|client| id.is_of(client.id));
            client.map(|client| (client, id.sequence()))
        });
        let is_gone = holder.is_some_and(|(client, owner)| {
            client.machine.own(key, owner).is_none() && client.life < Life::Closed
        });
        let note = holder.and_then(|(client, owner)| client.notes.get(owner));
        let is_detached = note.is_some_and(|note| note.is_over == Some(DETACHED));
        // A release that a majority has executed is not repeated.
        let may_be_left = self.plan.may(Effect::Leaves)
            || self.is_quorum() && self.plan.may(Effect::LeavesOfMinority);
        let is_down = self.servers[server].down_until > now;
        // A request that was on its way when the guard was detached may be executed late, and the lease counts from then: a
        // renewal waits for a paused server, or an acquire arrives after its client has repeated it.
        let longest_lease = u64::from(self.plan.longest_lease()) * MS;
        let pause = (self.plan.has(Part::ServerPaused)).then_some(LONGEST_PAUSE);
        let loss = (self.plan.has(Part::RequestLost)).then_some(longest_lease);
        let late = pause.max(loss).filter(|_| is_detached).unwrap_or(0);
        let lock = self.lock(key);
        lock.owners
            .resize_with(lock.owners.len().max(server + 1), Default::default);
        let (last, since) = &mut lock.owners[server];
        if *last != owner {
            (*last, lock.moved) = (owner, lock.moved.max(now));
            *since = None;
        }
        if may_be_left || !is_gone || is_down {
            *since = None;
            return;
        }
        // The client may have forgotten it just now, because in worlds of long leases the audit before may be long ago.
        let orphaned = now - *since.get_or_insert(now);
        if orphaned > LONGEST_ORPHANED + late {
            let orphaned = Duration::from_nanos(orphaned);
            let what = format!("{key}: server {server} has an owner that is gone for {orphaned:?}");
            self.breaks(NOTHING_LEFT, what);
        }
    }
}
