//! Simulates a planned failover, in which the replica has all data when it takes over. The former master accepts writes until it is demoted, and each client stays there until it learns
//! of the failover.

use rlock_model::requests::{Answer, Body};
use rlock_proto::store::Acquired;

use crate::{
    plan::{Kind, Part},
    servers::Server,
    store::TOKENS,
    world::{MS, Place, World},
};

/// The number of the former master among the servers.
pub(crate) const FORMER: usize = 1;
/// The time from a failover until the Sentinels demote the former master.
const DEMOTED: u64 = 10_000 * MS;
/// The longest time until a client learns of a failover, unless its lease is short.
const LONGEST_WINDOW: u64 = 1_100 * MS;

impl World {
    /// Returns the server with this number.
    pub(crate) fn server(&mut self, server: usize) -> &mut Server {
        match &mut self.former {
            Some(former) if server == FORMER => former,
            _ => &mut self.servers[server],
        }
    }

    /// Returns how many failovers there had been when the client's master took over.
    pub(crate) fn master_of(&self, client: usize) -> u64 {
        self.failovers - u64::from(self.clients[client].at_former)
    }

    /// Returns the server to which a connection leads, unless its master was demoted.
    pub(crate) fn leads_to(&self, server: usize, master: u64) -> Option<usize> {
        match self.failovers - master {
            0 => Some(server),
            1 if self.former.is_some() => Some(FORMER),
            _ => None,
        }
    }

    /// Returns the time from a failover until all clients have left the former master.
    fn window(&self) -> u64 {
        LONGEST_WINDOW.min(u64::from(self.plan.leases()[0]) * MS / 4)
    }

    /// Replaces the master, unless it was replaced a moment ago.
    pub(crate) fn replaces_master(&mut self) -> Option<()> {
        if self.servers.len() > 1 || self.former.is_some() {
            return None;
        }
        let successor = self.servers[0].successor();
        let server = std::mem::replace(&mut self.servers[0], successor);
        (self.former, self.failed_over) = (Some(server), self.now);
        self.failovers += 1;
        let window = self.window();
        for client in 0..self.clients.len() {
            self.clients[client].at_former = true;
            let after = self.rng.u64(..window);
            if !self.plan.stays {
                self.at_client(client, after, move |world| world.leaves_former(client));
            }
        }
        self.moves_until(self.now + DEMOTED);
        self.later(Place::World, DEMOTED, |world| {
            for client in 0..world.clients.len() {
                world.leaves_former(client);
            }
            world.former = None;
        });
        Some(())
    }

    /// Closes a client's connections to the former master. Its requests that await a reply there time out.
    pub(crate) fn leaves_former(&mut self, client: usize) {
        let state = &mut self.clients[client];
        if !std::mem::take(&mut state.at_former) {
            return;
        }
        let (id, awaited) = (state.id, state.awaited.keys().copied().collect::<Vec<_>>());
        self.server(FORMER).leaves(id);
        self.servers[0].joins(id);
        self.note(|| format!("client {client} leaves the former master"));
        for request in awaited {
            self.timed_out(client, request);
        }
        let (who, after) = (self.who(client), self.rng.u64(MS..5 * MS));
        self.misses(who, 0, false);
        self.misses(who, after, true);
    }

    /// Excuses the locks of a request that the former master has executed, because replication does not bring it to the
    /// successor. After the window, excuses nothing, because no client should still be there.
    pub(crate) fn is_not_replicated(&mut self, body: &Body, answer: &Answer) {
        let window = self.window();
        let Some(former) = &mut self.former else {
            return;
        };
        if self.now > self.failed_over + window {
            return;
        }
        let is_new = match (body, answer) {
            (Body::Acquire(request, _), Answer::Acquired(Acquired::Granted { .. })) => {
                let (time, successor) = (self.servers[0].time(self.now), &mut self.servers[0]);
                request.claims.iter().any(|claim| {
                    let holder = successor.state.held_by(&claim.key, claim.owner, time);
                    holder.is_none()
                })
            }
            (Body::Release(..), _) => true,
            _ => false,
        };
        for key in body.keys() {
            let token = former.largest_fence(&key) * TOKENS + TOKENS - 1;
            let lock = self.locks.get_mut(&key).expect("the key exists");
            if is_new {
                lock.void = lock.void.max(token);
            } else {
                lock.renewed = lock.renewed.max(token);
            }
        }
    }

    /// Returns whether requests may be so late that a client renews a lock at the successor only after its lease has ended
    /// there.
    pub(crate) fn may_renew_late(&self) -> bool {
        let is_late = |part: Part| {
            self.plan.has(part) && (Kind::OfMessages..=Kind::OfServers).contains(&part.kind())
        };
        self.plan.leases()[0] < 1_000
            || Part::faults().any(|part| part != Part::MasterReplaced && is_late(part))
    }

    /// Returns whether clients may rely on leases that only the former master has renewed.
    pub(crate) fn is_failing_over(&self) -> bool {
        let longest = u64::from(self.plan.longest_lease()) * MS;
        self.failed_over > 0 && self.now < self.failed_over + self.window() + longest
    }
}
