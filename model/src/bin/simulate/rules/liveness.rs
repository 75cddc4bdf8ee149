//! No lock stays free while a call waits for it, a call that can go on is woken, and calls do not wake each other without end.

use std::time::Duration;

use super::{About, Rule};
use crate::{
    clients::{Client, Doing},
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{Input, Output, Ownership, Phase, Slot, Step},
    plan::{Effect, Part},
    world::{MS, World},
};

const SERVED: Rule = "no lock stays free while a call waits for it";
const WOKEN: Rule = "a call that can go on is woken";
const RESTS: Rule = "calls do not wake each other without end";

/// How long a free lock may have a waiter, since the last event that may delay its grant: a lost notification costs
/// five seconds, a lost request two, a waiter that has gone one. A holder that has gone costs its lease, too.
const LONGEST_IDLE: u64 = 20_000 * MS;
/// The same, if nothing delays grants.
const SHORTEST_IDLE: u64 = 3_000 * MS;
/// How often calls may be polled within a millisecond.
const MOST_POLLS: u64 = 50_000;
/// How long the first waiter may take to ask after a change was reported.
const FOR_CHANGE: Duration = Duration::from_secs(3);

impl World {
    /// Checks that calls do not wake each other without end, when one is polled.
    pub(super) fn is_at_rest(&mut self) {
        let (number, since) = self.polls_since;
        self.polls_since = if self.now < since + MS {
            (number + 1, since)
        } else {
            (0, self.now)
        };
        if number > MOST_POLLS {
            self.breaks(RESTS, format!("{number} polls within a millisecond"));
        }
    }

    /// Checks that the locks of a waiting call do not all stay free.
    pub(super) fn is_served(&mut self, client: usize, task: usize) {
        let state = &self.clients[client];
        let waiting = &state.tasks[task];
        let (wants, since, is_paused) = (
            waiting.wants.clone(),
            waiting.since,
            state.paused_until > self.now,
        );
        // A hold that was lost by its `max_hold`, or because a client asked, keeps the lock until it leaves.
        let keeps = |client: &Client, key: &Key| {
            let owns = client
                .machine
                .slot(key)
                .map_or(&[][..], |slot| slot.ownerships());
            let mut held = owns.iter().filter(|own| own.phase() == Phase::Held);
            held.any(|own| matches!(own.lost(), Some(LostCause::MaxHold | LostCause::Revoked)))
        };
        let mut moved = since;
        for key in &wants {
            let holds = self.holds(key);
            if !holds.is_empty() || self.clients.iter().any(|client| keeps(client, key)) {
                self.moves(key, self.now);
            }
            let lock = self.lock(key);
            lock.holds = holds;
            moved = moved.max(lock.moved);
        }
        // A call that wants no more locks waits for the requests of the hold around it.
        if is_paused || wants.is_empty() {
            return;
        }
        // A lease ends by its holder's clock a little sooner than by the server's, and since the last look.
        let lease = u64::from(self.plan.longest_lease()) * MS;
        let most = if self.is_quorum() || self.plan.may(Effect::Delays) {
            LONGEST_IDLE + lease
        } else {
            SHORTEST_IDLE + lease / 4
        };
        let idle = self.now.saturating_sub(moved);
        self.counts.longest_idle = self.counts.longest_idle.max(idle);
        if idle > most {
            let idle = Duration::from_nanos(idle);
            let what = format!("{wants:?} are free for {idle:?}, and client {client} waits");
            self.breaks(SERVED, what);
        }
    }

    /// Polls a call that waits for no reply, in a copy of its machine: it has to wait on.
    pub(super) fn is_woken(&mut self, client: usize, task: usize) {
        let state = &self.clients[client];
        let waiting = &state.tasks[task];
        let (Doing::Acquiring(call) | Doing::Leaving(call)) = waiting.doing else {
            return;
        };
        let now = state.clock.time(self.now);
        let is_busy = waiting.is_sending || waiting.is_planned || state.paused_until > self.now;
        if is_busy || state.machine.due().is_some_and(|due| due <= now) {
            return;
        }
        let mut machine = state.machine.clone();
        let outputs = machine.on(Input::Poll(call), now);
        let goes_on = |output: &Output| match output {
            Output::Step(Step::Wait) => false,
            output => matches!(output, Output::Step(_)),
        };
        if let Some(step) = outputs.into_iter().find(goes_on) {
            let what = format!("client {client}: {call:?} was not woken for {step:?}");
            self.breaks(WOKEN, what);
        }
    }

    /// Checks that the first waiter of a key asks after a change was reported.
    pub(super) fn first_waiter_asks(&mut self, client: usize, key: &Key) {
        let state = &self.clients[client];
        let Some(own) = state.current(key).filter(|_| !self.shares()) else {
            return;
        };
        let changed_at = state.notes.get(own.owner).and_then(|note| note.changed_at);
        let asks_by = changed_at.map_or(Time::NEVER, |at| at + FOR_CHANGE);
        let sleeps = own.phase().is_pending() && state.clock.time(self.now) > asks_by;
        let excuses = [Part::ClientPaused, Part::CallNotPolled];
        if sleeps && !self.plan.has_any(&excuses) {
            let what = format!("{key}: client {client} is the first waiter, and does not ask");
            self.breaks(SERVED, what);
        }
    }

    /// Checks after an input that the client keeps no lock for a call that is gone, nor while others wait.
    pub(super) fn gives_back(&mut self, client: usize, about: &About) {
        let Client { machine, notes, .. } = &self.clients[client];
        let own = (about.owner.as_ref()).and_then(|(key, owner)| machine.own(key, *owner));
        let phase = own.map(Ownership::phase);
        let is_forgotten = |slot: &Slot| {
            let own = slot.current().filter(|own| own.phase() == Phase::Retained);
            let note = own.and_then(|own| notes.get(own.owner));
            slot.waiters() == 0 && note.is_some_and(|note| note.retain.is_zero())
        };
        let broken = if about.is_gone && phase.is_none() {
            "the lock or the place of a waiter that has gone is not released"
        } else if about.wanted && phase == Some(Phase::Retained) {
            "a lock stays retained although others wait"
        } else if machine.slots().any(is_forgotten) {
            "a lock is retained for no call"
        } else {
            return;
        };
        self.breaks(SERVED, format!("client {client}: {broken}"));
    }

    /// Notes that grants of a key may be delayed until this time.
    pub(crate) fn moves(&mut self, key: &Key, until: u64) {
        let lock = self.lock(key);
        lock.moved = lock.moved.max(until);
    }

    pub(crate) fn moves_until(&mut self, until: u64) {
        self.locks
            .values_mut()
            .for_each(|lock| lock.moved = lock.moved.max(until));
    }

    pub(crate) fn moves_all(&mut self) {
        self.moves_until(self.now);
    }
}
