//! Lets the faults of a run strike from time to time, at clients, servers and operators.

use crate::{
    clients::Life,
    failover::FORMER,
    key::Key,
    machine::{Event, Input},
    owner::OwnerId,
    plan::{Kind, Part},
    servers::State,
    store::TOKENS,
    world::{CLOCK_STEP, MS, Place, Who, World},
};

/// How long a client may take to shut down, in each step.
const PATIENCE: u64 = 5_000 * MS;
/// How long a server may stand still.
pub(crate) const LONGEST_PAUSE: u64 = 3_000 * MS;

impl World {
    /// Plans when a fault strikes next, if this run has it.
    pub(crate) fn plan_fault(&mut self, fault: Part) {
        let every = u64::from(self.plan[fault]) * u64::from(self.plan.scale()) * MS;
        if every > 0
            && [Kind::OfClients, Kind::OfServers, Kind::OfOperators].contains(&fault.kind())
        {
            let after = self.rng.u64(..2 * every);
            self.later(Place::World, after, move |world| world.strikes(fault));
        }
    }

    fn strikes(&mut self, fault: Part) {
        if self.is_over {
            return;
        }
        let client = self.rng.usize(..self.clients.len());
        let server = self.rng.usize(..self.servers.len());
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        if self.strike(fault, client, server, key).is_some() {
            self.faults[fault as usize] += 1;
            self.note(|| format!("{fault}: client {client}, server {server}"));
        }
        self.moves_all();
        self.plan_fault(fault);
    }

    /// Applies a fault. Returns `None` if it changes nothing now.
    fn strike(&mut self, fault: Part, client: usize, server: usize, key: Key) -> Option<()> {
        let who = self.who(client);
        match fault {
            // Between two pauses, clients and servers act.
            Part::ClientPaused if self.now < self.clients[client].paused_until + 500 * MS => {
                return None;
            }
            Part::ServerPaused if self.now < self.servers[server].paused_until + 500 * MS => {
                return None;
            }
            Part::ClientShutDown if self.clients[client].life != Life::Open => return None,
            Part::ClientPaused => self.pause(client),
            Part::ClientDied => self.ends_life(client, 2_000 * MS),
            Part::ClientShutDown => self.closes(client, Life::Draining),
            Part::NotificationsInterrupted => {
                let lasts = self.rng.u64(MS..2_000 * MS);
                self.clients[client].deaf_until = self.now + lasts;
                self.misses(who, 0, false);
                self.misses(who, lasts, true);
            }
            Part::ChangeFalselyReported => {
                self.tells_client(who, 0, Input::Event(key, None, Event::Changed));
            }
            Part::ServerPaused => {
                let until = self.now + self.rng.u64(10 * MS..LONGEST_PAUSE);
                self.servers[server].paused_until = until;
                self.moves_until(until);
            }
            Part::ServerRestartedEmpty => self.restarts(server, State::default()),
            Part::OlderCopyTookOver => {
                // The copy lags by up to a second.
                let copy = self.servers[server].state.clone();
                let after = self.rng.u64(10 * MS..1_000 * MS);
                self.later(Place::World, after, move |world| {
                    world.restarts(server, copy);
                });
            }
            Part::MasterReplaced => return self.replaces_master(),
            Part::FenceEvicted => {
                self.voids_all();
                self.servers[server].lose_fences();
            }
            Part::ClockSetAhead | Part::ClockSetBack => {
                // The tokens of a quorum grow if clocks differ by less than the shortest lease.
                let third = u64::from(self.plan[Part::ShortestLease]) * MS / 3;
                let is_quorum = self.servers.len() > 1;
                let by = self.rng.u64(MS..if is_quorum { third } else { 5_000 * MS });
                // Every other step is longer than a server keeps a fence.
                let by = if is_quorum || by.is_multiple_of(2) {
                    by
                } else {
                    CLOCK_STEP
                };
                let (now, is_ahead) = (self.now, fault == Part::ClockSetAhead);
                let steps_back = self.servers[server].set_clock(now, by, is_ahead);
                if is_quorum || !steps_back {
                    self.voids_all();
                }
                // Leases end later.
                self.moves_until(now + 2 * by.max(5_000 * MS));
            }
            Part::LockDeleted => {
                self.voids(&key);
                for server in 0..self.servers.len() {
                    self.servers[server].delete(&key);
                    self.notifies(server);
                }
            }
            Part::HolderAsked | Part::LockTakenByForce => {
                return self.operator(fault == Part::LockTakenByForce, server, &key);
            }
            _ => return None,
        }
        Some(())
    }

    /// A member of a quorum goes down for a while, and comes back with other data.
    fn restarts(&mut self, server: usize, state: State) {
        if self.servers.len() == 1 {
            return self.replaces_data(server, state);
        }
        self.voids_lost(server);
        let after = self.rng.u64(..2_000 * MS);
        self.servers[server].down_until = self.now + after;
        self.later(Place::World, after, move |world| {
            world.replaces_data(server, state);
        });
    }

    /// A server continues with other data.
    fn replaces_data(&mut self, server: usize, state: State) {
        self.voids_lost(server);
        self.servers[server].restart(state);
        self.moves_all();
        for client in 0..self.clients.len() {
            let after = self.rng.u64(MS..500 * MS);
            self.misses(self.who(client), after, true);
        }
    }

    fn pause(&mut self, client: usize) {
        let lasts = self.rng.u64(10 * MS..6_000 * MS);
        self.clients[client].paused_until = self.now + lasts;
        for task in &mut self.clients[client].tasks {
            task.deadline = task.deadline.saturating_add(lasts);
        }
        self.moves_until(self.now + lasts);
    }

    /// A client ends, and another one takes its place. The servers learn that within this time.
    fn ends_life(&mut self, client: usize, within: u64) {
        let state = &mut self.clients[client];
        state.life = Life::Ended;
        let (id, next) = (state.id, state.life_number + 1);
        let after = self.rng.u64(..within);
        self.later(Place::World, after, move |world| {
            for server in 0..world.servers.len() {
                world.servers[server].leaves(id);
                world.notifies(server);
            }
            if world.former.is_some() {
                world.server(FORMER).leaves(id);
                world.notifies(FORMER);
            }
        });
        self.clients[client] = self.new_client(client, next);
        self.starts(client);
    }

    /// Takes the next step of a client that shuts down.
    fn closes(&mut self, client: usize, life: Life) {
        self.clients[client].life = life;
        self.moves_all();
        let next = match life {
            Life::Open | Life::Draining => {
                self.clients[client].drained = self.now;
                self.on(client, Input::Drain, None);
                Life::Closed
            }
            Life::Closed => {
                self.on(client, Input::Close, None);
                // The requests of calls are cut off.
                self.drops_requests(client, |call| call.is_some());
                for task in 0..self.clients[client].tasks.len() {
                    self.clients[client].tasks[task].is_sending = false;
                    self.goes_on(client, task, MS);
                }
                Life::Ended
            }
            Life::Ended => {
                self.on(client, Input::End, None);
                return self.ends_life(client, MS);
            }
        };
        let after = self.rng.u64(..PATIENCE);
        self.later(Place::Client(self.who(client)), after, move |world| {
            world.closes(client, next);
        });
    }

    /// Tells a client something after this time.
    pub(crate) fn tells_client(&mut self, who: Who, after: u64, input: Input) {
        self.later(Place::Client(who), after, move |world| {
            world.on(who.client, input, None);
        });
    }

    /// Tells a client that any lock may have changed, after this time.
    pub(crate) fn misses(&mut self, who: Who, after: u64, is_heard: bool) {
        for key in self.keys.clone() {
            self.tells_client(
                who,
                after,
                Input::Event(key, None, Event::Missed { is_heard }),
            );
        }
    }

    /// Draws whether an operator extends a hold instead of revoking it.
    fn extends_for(&mut self, at_once: bool) -> bool {
        let may_renew = self.plan.has(Part::Extends) && !self.plan.has(Part::NeverRenewed);
        !at_once && may_renew && self.rng.bool()
    }

    /// Asks the holder of a lock to release or extend it, or takes it by force.
    fn operator(&mut self, at_once: bool, server: usize, key: &Key) -> Option<()> {
        let time = self.servers[server].time(self.now);
        let entry = self.servers[server].state.inspect(key, time)?;
        let owner = OwnerId::parse(&entry.owner).filter(|owner| *owner != OwnerId::KEPT)?;
        let is_named = self.rng.u8(..4) == 0;
        let token = entry.fence.filter(|_| is_named).map(|fence| fence * TOKENS);
        if at_once {
            self.voids(key);
            for server in 0..self.servers.len() {
                self.servers[server].revoke(self.now, key);
                self.notifies(server);
            }
        }
        let holder = self
            .clients
            .iter()
            .position(|client| owner.is_of(client.id));
        if let Some(client) = holder
            && (!at_once || self.rng.bool())
        {
            let after = self.rng.u64(..5 * MS);
            let event = match token {
                Some(token) if self.extends_for(at_once) => Event::Extend {
                    token,
                    lease: self.any_lease(),
                },
                _ => Event::Revoke { token, at_once },
            };
            self.tells_client(
                self.who(client),
                after,
                Input::Event(key.clone(), Some(owner.sequence()), event),
            );
        }
        Some(())
    }
}
