//! No hold begins within the `min_hold` of the one before, in runs without faults of requests.

use std::time::Duration;

use super::{Hold, Rule};
use crate::{
    clients::Client,
    key::Key,
    lease::Time,
    machine::{Entry, Owner},
    world::{MS, World},
};

const KEPT: Rule = "no hold begins within the `min_hold` of the one before";

impl World {
    /// Checks that a hold does not begin while the `min_hold` of the one before lasts.
    pub(super) fn waits_for_min_hold(&mut self, key: &Key, hold: Hold) {
        let kept_until = self.locks[key].kept_until;
        if hold.token > self.void(key) && self.now < kept_until {
            let early = Duration::from_nanos(kept_until - self.now);
            let what = format!("{key}: {hold:?} begins {early:?} early");
            self.breaks(KEPT, what);
        }
    }

    /// Notes that an entry is about to end with success, which keeps its lock until this time.
    pub(crate) fn keeps(&mut self, client: usize, entry: &Entry, until: Option<Time>) {
        let Client {
            machine,
            notes,
            clock,
            ..
        } = &mut self.clients[client];
        let now = clock.time(self.now);
        let own = machine.own(&entry.key, entry.owner);
        if own.is_some_and(|own| own.valid_until(now).is_ok()) {
            let note = notes.of(entry.owner);
            note.kept_until = note.kept_until.max(until);
        }
    }

    /// Notes the end of a hold.
    pub(super) fn ends_hold(&mut self, client: usize, owner: Owner, now: Time) {
        let Client {
            machine,
            notes,
            clock,
            ..
        } = &mut self.clients[client];
        let note = notes.of(owner);
        (note.is_present, note.ended_at) = (false, now);
        let Some(key) = note.key.clone().filter(|_| !note.is_lost) else {
            return;
        };
        // The release may arrive after the lease. Clocks drift, and the server counts milliseconds.
        let valid = machine
            .own(&key, owner)
            .and_then(|own| own.valid_until(now).ok());
        let until = note
            .kept_until
            .unwrap_or_default()
            .min(valid.unwrap_or_default());
        let (until, token) = (clock.at(until).saturating_sub(3 * MS), note.token);
        if !self.may_fail() && !self.is_excused(&key, token) {
            let lock = self.lock(&key);
            lock.kept_until = lock.kept_until.max(until);
        }
    }
}
