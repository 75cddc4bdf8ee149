//! Which hold is to be looked at when.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashSet, btree_map::Entry},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use super::line::Line;
#[cfg(feature = "redis")]
use crate::store::Which;
use crate::{
    hold::{Appointment, Duty, Hold},
    key::Key,
    lease::Time,
};

/// Thousands of holds come due at once, each somewhere else in memory. So a hold knows its
/// appointment itself, and is not looked up by its key on the way.
pub(super) struct Agenda {
    tracked: HashSet<ByKey>,
    /// The appointments of each moment: thousands share one.
    by_time: BTreeMap<Time, Moment>,
    /// An empty one, whose memory is used again.
    spare: Moment,
    /// How far the store has come with the renewals.
    pub(super) line: Line,
    /// Until when the timer sleeps at most.
    sleeps_until: Time,
}

/// The holds that are due at one moment, by their owners' sequence.
type Moment = BTreeMap<u64, Arc<Hold>>;

/// A hold that is looked up by its key.
struct ByKey(Arc<Hold>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            tracked: HashSet::new(),
            by_time: BTreeMap::new(),
            spare: Moment::new(),
            line: Line::default(),
            sleeps_until: Time::NEVER,
        }
    }
}

impl Agenda {
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.tracked
            .iter()
            .map(|ByKey(hold)| Arc::clone(hold))
            .collect()
    }

    /// Answers the other hold that stood under the same key, if there was one, and whether the
    /// timer sleeps too long for this one.
    pub(super) fn insert(&mut self, hold: &Arc<Hold>, now: Time) -> (Option<Arc<Hold>>, bool) {
        if !hold.is_held() {
            return (None, false);
        }
        // What was heard of this hold and not yet looked at is still to be looked at.
        let present = hold.appointment();
        let suspect = present.is_some_and(|next| next.suspect);
        let at = if suspect { now } else { hold.due() };
        let mut former = None;
        if present.is_none() {
            former = self.tracked.replace(ByKey(Arc::clone(hold)));
        }
        if let Some(ByKey(former)) = &former {
            self.cancel(former);
        }
        let next = Appointment { at, suspect };
        // A nested entry mostly leaves everything as it was.
        if present != Some(next) {
            self.appoint(hold, next);
        }
        (former.map(|ByKey(former)| former), at < self.sleeps_until)
    }

    fn appoint(&mut self, hold: &Arc<Hold>, next: Appointment) {
        if let Some(former) = hold.appoint(Some(next)) {
            self.take_out(former.at, hold);
        }
        self.put_down(next.at, Arc::clone(hold));
    }

    fn cancel(&mut self, hold: &Hold) {
        if let Some(former) = hold.appoint(None) {
            self.take_out(former.at, hold);
        }
    }

    fn put_down(&mut self, at: Time, hold: Arc<Hold>) {
        let moment = self.by_time.entry(at);
        let moment = moment.or_insert_with(|| std::mem::take(&mut self.spare));
        moment.insert(hold.owner.sequence(), hold);
    }

    fn take_out(&mut self, at: Time, hold: &Hold) {
        if let Entry::Occupied(mut moment) = self.by_time.entry(at) {
            moment.get_mut().remove(&hold.owner.sequence());
            if moment.get().is_empty() {
                self.spare = moment.remove();
            }
        }
    }

    pub(super) fn remove_unless_held(&mut self, hold: &Arc<Hold>) {
        if hold.appointment().is_some() && !hold.is_held() {
            self.tracked.remove(&hold.key);
            self.cancel(hold);
        }
    }

    /// The store confirmed a lease: puts the hold down for when it is due next, unless it was
    /// forgotten meanwhile.
    pub(super) fn renewed(&mut self, hold: &Arc<Hold>, sent_at: Time, lease: Duration, now: Time) {
        if let Some((former, next)) = hold.renewed(sent_at, lease, now) {
            self.take_out(former, hold);
            self.put_down(next, Arc::clone(hold));
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn hold(&self, key: &Key) -> Option<Arc<Hold>> {
        self.tracked.get(key).map(|ByKey(hold)| Arc::clone(hold))
    }

    /// Has this hold looked at then because somebody else changed the lock, unless it was forgotten
    /// meanwhile.
    pub(super) fn suspect(&mut self, hold: &Arc<Hold>, at: Time) {
        if hold.appointment().is_some() {
            let suspect = true;
            self.appoint(hold, Appointment { at, suspect });
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn suspect_all(&mut self, which: &Which, at: Time) {
        for hold in self.holds().iter().filter(|hold| which.has(&hold.key)) {
            self.suspect(hold, at);
        }
    }

    /// Has these holds looked at then, or when they are due.
    pub(super) fn verify(&mut self, holds: &[Arc<Hold>], at: Time) {
        for hold in holds {
            self.suspect(hold, at.min(hold.due()));
        }
    }

    /// The holds that are due, and what is to be done about each; all are put down for their next
    /// attempt, should this one fail.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(Arc<Hold>, Duty)> {
        let mut taken = Vec::new();
        while let Some(first) = self.by_time.first_entry() {
            if *first.key() > now {
                break;
            }
            for hold in first.remove().into_values() {
                let in_line = |sent, pause| self.line.holds(sent, now, pause);
                let (duty, next) = hold.come_due(now, in_line);
                self.put_down(next, Arc::clone(&hold));
                taken.push((hold, duty));
            }
        }
        taken
    }

    pub(super) fn first_due(&self) -> Option<Time> {
        self.by_time.first_key_value().map(|(at, _)| *at)
    }

    /// Notes until when the timer sleeps, `look` at most; `None`: until it is woken.
    pub(super) fn go_to_sleep(&mut self, now: Time, look: Duration) -> Option<Duration> {
        let next = self.first_due();
        self.sleeps_until = next.map_or(Time::NEVER, |due| due.min(now + look));
        next.map(|_| self.sleeps_until.since(now))
    }
}
