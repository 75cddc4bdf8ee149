//! Passes each input, output, hold, refusal and write of a run to the rules that check it, and keeps what they know.

mod about;
mod counts;
mod deadlines;
mod exclusion;
mod excuses;
mod fairness;
mod joins;
mod leases;
mod leftovers;
mod liveness;
mod losses;
mod min_hold;
mod ownerships;
mod refusals;
mod renewals;
mod restored;
mod tokens;
mod wait_queues;

pub(crate) use self::{
    about::About, deadlines::IN_TIME, refusals::NO_REFUSAL, wait_queues::Before,
};
use crate::{
    clients::{Client, Doing, Life},
    key::Key,
    known::{GONE, Hold, Lock, Rule, Violation},
    lease::Time,
    machine::{Ask, By, Input, Output, Request, Revoked, Slot, Step},
    options::LockOptions,
    owner::OwnerId,
    plan::Part,
    store::StoredLock,
    world::World,
};

impl World {
    pub(crate) fn breaks(&mut self, rule: Rule, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    fn lock(&mut self, key: &Key) -> &mut Lock {
        self.locks.get_mut(key).expect("the key exists")
    }

    /// Returns whether a hold still relies on its lock.
    pub(crate) fn relies(&self, key: &Key, hold: &Hold) -> bool {
        let client = &self.clients[hold.client];
        let own = client
            .machine
            .own(key, hold.owner)
            .filter(|own| own.is_live(hold.token));
        client.life_number == hold.life
            && client.life < Life::Ended
            && own.is_some_and(|own| own.valid_until(client.clock.time(self.now)).is_ok())
    }

    /// Returns the holds of a key that still rely on it.
    fn holds(&mut self, key: &Key) -> Vec<Hold> {
        let mut holds = std::mem::take(&mut self.lock(key).holds);
        holds.retain(|hold| self.relies(key, hold));
        holds
    }

    /// Returns what a server knows of a lock.
    fn stored(&mut self, server: usize, key: &Key) -> Option<StoredLock> {
        let at = self.servers[server].time(self.now);
        self.servers[server].state.inspect(key, at)
    }

    /// Returns whether holders may share a lock in this run. Then only the rules about holders are checked.
    fn shares(&self) -> bool {
        self.plan.has(Part::Shares)
    }

    fn is_quorum(&self) -> bool {
        self.servers.len() > 1
    }

    /// Notes the reply that a client receives, before its machine reads it.
    pub(crate) fn before(&mut self, client: usize, input: &Input, now: Time) -> About {
        let is_quorum = self.is_quorum();
        let Client { machine, notes, .. } = &mut self.clients[client];
        notes.told(input, machine, now, is_quorum);
        let about = About::of(machine, input, now);
        if matches!(input, Input::Poll(_)) {
            self.is_at_rest();
        }
        about
    }

    /// Looks at the machine after an input.
    pub(crate) fn after(&mut self, client: usize, about: &About, now: Time) {
        self.joins_in_time(client, about);
        let Client { machine, notes, .. } = &mut self.clients[client];
        for (key, owner, was) in &about.phases {
            let is = machine
                .own(key, *owner)
                .map_or(GONE, |own| own.phase() as usize);
            self.seen[*was as usize][is] += 1;
        }
        if self.plan.has(Part::Shares) {
            return;
        }
        for (key, owner) in &about.granted {
            let note = notes.of(*owner);
            note.waiters = note.waiters.max(machine.slot(key).map_or(0, Slot::waiters));
        }
        self.stays_over(client, about, now);
        self.gives_back(client, about);
        self.keeps_retained(client, about);
    }

    /// Checks what a client tells, and notes it. `owner`: the one that the input was about.
    pub(crate) fn tells(&mut self, client: usize, about: &About, output: &Output) {
        let now = self.clients[client].clock.time(self.now);
        if self.shares() {
            if let Output::Lost(loss) = output {
                self.stops_bodies(client, loss);
                self.moves(&loss.key, self.now);
            } else if let Output::GaveUp { key, .. } = output {
                self.moves(key, self.now);
            }
            return;
        }
        match output {
            Output::Renew(renew) => self.renews(client, renew, now),
            Output::Lost(loss) => self.loses(client, loss, now),
            Output::Ended { owner, .. } => self.ends_hold(client, *owner, now),
            Output::Send(request) | Output::Step(Step::Send(request)) => {
                self.asks(client, about, request, now);
            }
            Output::GaveUp { key, .. } => self.moves(key, self.now),
            Output::Revoked(Revoked::Lost | Revoked::Given | Revoked::Retained) => {
                if let Some((_, owner)) = about.owner {
                    self.clients[client].notes.of(owner).is_over = Some("was taken by force");
                }
            }
            _ => {}
        }
    }

    /// A client sends a request.
    fn asks(&mut self, client: usize, about: &About, request: &Request, now: Time) {
        match request.what {
            Ask::Release { .. } => {
                let claim = &request.claims[0];
                let Client { machine, notes, .. } = &mut self.clients[client];
                let own = machine.own(&claim.key, claim.owner);
                let until = own.and_then(|own| own.valid_until(now).ok());
                let note = notes.of(claim.owner);
                note.is_over = Some("was released");
                note.releases += 1;
                note.valid_until = note.valid_until.max(until.unwrap_or_default());
            }
            Ask::SetCount { .. } => {
                let owner = request.claims[0].owner;
                self.clients[client].notes.of(owner).told_at = now;
            }
            Ask::Downgrade { .. } => {}
            Ask::Acquire { .. } => {
                self.asks_with(client, request);
                self.follows_release(client, about, request);
                self.asks_seldom(client, request);
                let notes = &mut self.clients[client].notes;
                for claim in &request.claims {
                    notes.of(claim.owner).asks(request.number);
                }
            }
        }
    }

    /// A hold begins.
    pub(crate) fn begins(
        &mut self,
        client: usize,
        key: &Key,
        hold: Hold,
        by: By,
        terms: &LockOptions,
    ) {
        if !self.shares() {
            self.begins_with(client, key, hold, by, terms);
            self.serves(client, key, hold.owner, by);
        }
        self.excludes(key, hold);
        self.tokens_grow(key, hold);
        self.waits_for_min_hold(key, hold);
        self.excuses(key, hold);
        self.audit_reliance(client, key);
    }

    /// Looks at what the clients hold and wait for, and at the servers.
    pub(crate) fn audit(&mut self) {
        for client in 0..self.clients.len() {
            for task in 0..self.clients[client].tasks.len() {
                self.is_woken(client, task);
                if let Doing::Acquiring(_) = self.clients[client].tasks[task].doing {
                    self.is_in_time(client, task);
                    self.is_served(client, task);
                }
            }
            for key in self.keys.clone() {
                self.audit_reliance(client, &key);
                self.notices_loss(client, &key);
                self.first_waiter_asks(client, &key);
            }
        }
        for key in self.keys.clone() {
            for server in 0..self.servers.len() {
                self.audit_counts(server, &key);
                self.audit_restored(server, &key);
                self.audit_leftovers(server, &key);
            }
        }
    }
}

/// Returns the owner that a server names, if a client has written it.
fn stored_by(owner: &str) -> Option<OwnerId> {
    OwnerId::parse(owner).filter(|owner| *owner != OwnerId::KEPT)
}
