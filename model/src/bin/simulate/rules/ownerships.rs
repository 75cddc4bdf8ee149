//! No hold begins with an ownership that has ended or is in doubt, and none that has ended comes back.

use std::time::Duration;

use super::{About, Hold, Rule};
use crate::{
    clients::Client,
    key::Key,
    lease::Time,
    machine::{By, Entry, Owner, Request},
    notes::Note,
    options::LockOptions,
    plan::Part,
    store::GRACE,
    world::World,
};

const USABLE: Rule = "no hold begins with an ownership that has ended or is in doubt";

impl World {
    /// Checks that a hold may begin with its ownership, and notes it.
    pub(super) fn begins_with(
        &mut self,
        client: usize,
        key: &Key,
        hold: Hold,
        by: By,
        terms: &LockOptions,
    ) {
        let (owner, now) = (hold.owner, self.clients[client].clock.time(self.now));
        let state = &mut self.clients[client];
        let left = state
            .machine
            .own(key, owner)
            .map_or(Duration::ZERO, |own| own.rest(now));
        let former = std::mem::take(state.notes.of(owner));
        let is_local = by == By::Local;
        // A call that leaves without a hold leaves the lock to a call that it was not meant for.
        let may_be_left = self.plan.has_any(&[
            Part::SeveralKeys,
            Part::CallCancelled,
            Part::CallNotPolled,
            Part::ClientShutDown,
        ]);
        let broken = if former.is_over.is_some() {
            "is over"
        } else if former.is_lost {
            "was lost"
        } else if former
            .doubt
            .is_some_and(|doubt| doubt.has_failed || is_local)
        {
            "is in doubt"
        } else if is_local && former.token > 0 && former.terms.lease != terms.lease {
            "has another lease"
        } else if is_local && !terms.watchdog && !may_be_left {
            "is not renewed"
        } else {
            ""
        };
        *state.notes.of(owner) = Note {
            key: Some(key.clone()),
            token: hold.token,
            terms: *terms,
            began: now,
            confirmed_until: now + left,
            is_present: true,
            is_over: former.is_over,
            is_lost: former.is_lost,
            is_brief: left <= GRACE && terms.lease >= GRACE * 2,
            attempts: former.attempts,
            waiters: former.waiters,
            has_asked: true,
            told_at: former.told_at,
            ..Note::default()
        };
        if !broken.is_empty() {
            let what = format!("{key}: {hold:?} begins, and its ownership {broken}: {former:?}");
            self.breaks(USABLE, what);
        }
    }

    /// Notes an entry of a task. `is_single`: its call has no other. Returns until when its success keeps the lock.
    pub(crate) fn enters(
        &mut self,
        client: usize,
        task: usize,
        entry: &Entry,
        is_single: bool,
        is_new: bool,
    ) -> Option<Time> {
        if self.shares() {
            return None;
        }
        let (key, owner) = (&entry.key, entry.owner);
        let Client {
            machine,
            notes,
            clock,
            tasks,
            ..
        } = &mut self.clients[client];
        let (now, task) = (clock.time(self.now), &tasks[task]);
        // A call for several keys enters the hold it nests in before it has the other locks. The hold may be lost then.
        let since = if is_new { now } else { clock.time(task.since) };
        let note = notes.of(owner);
        note.retain = note.retain.max(task.terms.retain);
        let kept_until = task.terms.min_hold.map(|least| since + least);
        let is_valid = machine
            .own(key, owner)
            .is_some_and(|own| own.valid_until(now).is_ok());
        if !is_valid && (is_single || is_new) {
            let what = format!("{key}: a call of client {client} enters a hold that is lost");
            self.breaks(USABLE, what);
        }
        kept_until
    }

    /// Checks that a client does not ask with an owner whose grant may be taken back.
    pub(super) fn asks_with(&mut self, client: usize, request: &Request) {
        let notes = &self.clients[client].notes;
        let is_retired = |owner| notes.get(owner).is_some_and(|note| note.is_retired);
        if request.claims.iter().any(|claim| is_retired(claim.owner)) {
            let what = format!(
                "client {client} asks with an owner whose grant may be taken back: {request:?}"
            );
            self.breaks(USABLE, what);
        }
    }

    /// Checks that no hold that had ended by the clock is valid again after an input.
    pub(super) fn stays_over(&mut self, client: usize, about: &About, now: Time) {
        let machine = &self.clients[client].machine;
        let is_back = |(key, owner, token): &(Key, Owner, u64)| {
            let own = machine.own(key, *owner).filter(|own| own.is_live(*token));
            own.is_some_and(|own| own.valid_until(now).is_ok())
        };
        if about.over.iter().any(is_back) {
            let what = format!("client {client}: a hold that had ended comes back");
            self.breaks(USABLE, what);
        }
    }
}
