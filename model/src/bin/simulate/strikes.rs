//! Faults that strike from time to time.

use crate::{
    clients::Life,
    engine::machine::{Event, Input},
    key::Key,
    owner::OwnerId,
    plan::Fault,
    servers::Server,
    store::TOKENS,
    world::{Happening, MS, Who, World},
};

/// How long a client may take to shut down, in each step.
const PATIENCE: u64 = 5_000 * MS;

impl World {
    /// Plans when a fault strikes next, if this run has it.
    pub(crate) fn plan_fault(&mut self, fault: Fault) {
        let every = u64::from(self.plan.rate(fault)) * MS;
        if every > 0 && fault >= Fault::Paused && fault < Fault::Drift {
            let after = self.rng.u64(..2 * every);
            self.later(after, Happening::Strikes(fault));
        }
    }

    pub(crate) fn strikes(&mut self, fault: Fault) {
        if self.is_over {
            return;
        }
        let client = self.rng.usize(..self.clients.len());
        let server = self.rng.usize(..self.servers.len());
        if self.strike(fault, client, server) {
            self.faults[fault as usize] += 1;
            self.note(|| format!("{}: client {client}, server {server}", fault.name()));
        }
        self.moves_all();
        self.plan_fault(fault);
    }

    /// Applies a fault. Returns `false` if it changes nothing now.
    fn strike(&mut self, fault: Fault, client: usize, server: usize) -> bool {
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        match fault {
            // Between two pauses it acts.
            Fault::Paused if self.now < self.clients[client].paused_until + 500 * MS => {
                return false;
            }
            Fault::Paused => self.pause(client),
            Fault::Died => self.dies(client),
            Fault::Closed => {
                if self.clients[client].life != Life::Open {
                    return false;
                }
                self.later(0, Happening::Closes(self.who(client), Life::Draining));
            }
            Fault::Disconnected => {
                let (who, lasts) = (self.who(client), self.rng.u64(MS..2_000 * MS));
                self.clients[client].deaf_until = self.now + lasts;
                self.misses(who, 0, false);
                self.misses(who, lasts, true);
            }
            Fault::Reported => {
                let changed = Input::Event(key, None, Event::Changed);
                self.later(0, Happening::Event(self.who(client), changed));
            }
            Fault::ServerPaused if self.now < self.servers[server].paused_until + 500 * MS => {
                return false;
            }
            Fault::ServerPaused => {
                let lasts = self.rng.u64(10 * MS..3_000 * MS);
                let until = self.servers[server].paused_until.max(self.now + lasts);
                self.servers[server].paused_until = until;
                self.moves_until(until);
            }
            Fault::ServerCleared => {
                self.void_all();
                self.servers[server].clear();
                self.all_miss();
            }
            Fault::ServerOlder => {
                // The copy lags by up to a second.
                self.servers[server].copy();
                let after = self.rng.u64(10 * MS..1_000 * MS);
                self.later(after, Happening::GoesBack(server));
            }
            Fault::FenceLost => {
                self.void_all();
                self.servers[server].lose_fence();
            }
            Fault::ClockAhead | Fault::ClockBack => {
                // The tokens of a quorum grow if clocks differ by less than the shortest lease.
                let shortest = self.plan.leases.iter().min().copied().unwrap_or_default();
                let most = if self.servers.len() > 1 {
                    u64::from(shortest) * MS / 3
                } else {
                    5_000 * MS
                };
                let by = self.rng.u64(MS..most);
                self.void_all();
                self.servers[server].set_clock(by, fault == Fault::ClockAhead);
                // Leases end later.
                self.moves_until(self.now + 2 * most);
            }
            Fault::Asked | Fault::Taken => return self.operator(fault == Fault::Taken, server),
            _ => return false,
        }
        true
    }

    /// An older copy takes over from a server.
    pub(crate) fn goes_back(&mut self, server: usize) {
        self.void_all();
        self.servers[server].go_back();
        self.moves_all();
        self.all_miss();
    }

    fn pause(&mut self, client: usize) {
        let lasts = self.rng.u64(10 * MS..6_000 * MS);
        let until = self.now + lasts;
        let client = &mut self.clients[client];
        client.paused_until = client.paused_until.max(until);
        for task in &mut client.tasks {
            task.deadline = task.deadline.saturating_add(lasts);
        }
        self.moves_until(until);
    }

    fn dies(&mut self, client: usize) {
        let id = self.clients[client].id;
        self.clients[client].life = Life::Ended;
        let after = self.rng.u64(..2_000 * MS);
        self.later(after, Happening::Gone(id));
        self.replaces(client);
    }

    fn plan_close(&mut self, client: usize, life: Life) {
        let (who, after) = (self.who(client), self.rng.u64(..PATIENCE));
        self.later(after, Happening::Closes(who, life));
    }

    /// Takes the next step of a client that shuts down.
    pub(crate) fn closes(&mut self, client: usize, life: Life) {
        self.clients[client].life = life;
        if life == Life::Draining {
            self.clients[client].drained = self.now;
            self.on(client, Input::Drain, None);
            self.plan_close(client, Life::Closed);
        } else if life == Life::Closed {
            self.on(client, Input::Close, None);
            // Their requests are cut off.
            self.drops_requests(client, |call| call.is_some());
            for task in 0..self.clients[client].tasks.len() {
                self.clients[client].tasks[task].is_sending = false;
                self.goes_on(client, task, MS);
            }
            self.plan_close(client, Life::Ended);
        } else {
            self.on(client, Input::End, None);
            let id = self.clients[client].id;
            let after = self.rng.u64(..MS);
            self.later(after, Happening::Gone(id));
            self.replaces(client);
        }
        self.moves_all();
    }

    /// Notes that every present hold may be lost.
    fn void_all(&mut self) {
        for key in self.keys.clone() {
            self.void(&key);
        }
    }

    /// Notes that the present hold of a key may be lost.
    fn void(&mut self, key: &Key) {
        let fences = self.servers.iter().map(Server::last_fence);
        let token = fences.max().unwrap_or_default() * TOKENS + TOKENS - 1;
        let longest = self.plan.leases.iter().max().copied().unwrap_or_default();
        let parts = if self.servers.len() > 1 {
            u64::from(longest) * MS + 2_000 * MS
        } else {
            0
        };
        self.judge.voids(key, token, self.now, self.now + parts);
    }

    /// All clients learn that any lock may have changed.
    fn all_miss(&mut self) {
        for client in 0..self.clients.len() {
            let after = self.rng.u64(MS..500 * MS);
            self.misses(self.who(client), after, true);
        }
    }

    /// Tells a client that any lock may have changed, after this time.
    fn misses(&mut self, who: Who, after: u64, is_heard: bool) {
        for key in self.keys.clone() {
            let event = Input::Event(key, None, Event::Missed { is_heard });
            self.later(after, Happening::Event(who, event));
        }
    }

    /// Asks the holder of a lock to release it, or takes it by force.
    fn operator(&mut self, takes: bool, server: usize) -> bool {
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        let time = self.servers[server].time(self.now);
        let entry = self.servers[server].state.inspect(&key, time);
        let Some(entry) = entry else {
            return false;
        };
        let Some(owner) = OwnerId::parse(&entry.owner).filter(|owner| *owner != OwnerId::KEPT)
        else {
            return false;
        };
        let token = entry
            .fence
            .filter(|_| self.rng.u8(..4) == 0)
            .map(|fence| fence * TOKENS);
        if takes {
            self.void(&key);
            for server in 0..self.servers.len() {
                self.servers[server].revoke(&key, self.now);
                self.notifies(server);
            }
        }
        let holder = self
            .clients
            .iter()
            .position(|client| client.id == owner.client());
        if let Some(client) = holder
            && (!takes || self.rng.bool())
        {
            let who = self.who(client);
            let event = Event::Revoke {
                token,
                at_once: takes,
            };
            let input = Input::Event(key, Some(owner.sequence()), event);
            let after = self.rng.u64(..5 * MS);
            self.later(after, Happening::Event(who, input));
        }
        true
    }
}
