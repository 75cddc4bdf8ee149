//! Which hold is to be looked at when.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashSet, btree_map::Entry},
    hash::{Hash, Hasher},
    iter,
    sync::Arc,
    time::Duration,
};

use super::{cohort::Cohort, line::Line, sleep::Sleep};
use crate::store::Which;
use crate::{
    hold::{Appointment, Duty, Hold, SharedLease},
    key::Key,
    lease::Time,
    store::Renewal,
};

/// Thousands of holds come due at once, each somewhere else in memory. So a hold knows its
/// appointment itself, and is not looked up by its key on the way.
#[derive(Default)]
pub(super) struct Agenda {
    tracked: HashSet<ByKey>,
    /// The appointments of each moment: thousands share one.
    by_time: BTreeMap<Time, Moment>,
    /// An empty one, whose memory is used again.
    spare: Moment,
    /// How far the store has come with the renewals.
    pub(super) line: Line,
    /// That of the timer.
    sleep: Sleep,
}

/// What is due at one moment, by the owner's sequence; of a cohort by that of its first.
type Moment = BTreeMap<u64, Due>;

enum Due {
    Hold(Arc<Hold>),
    Cohort(Arc<Cohort>),
}

/// What came due.
pub(super) enum Came {
    Hold(Arc<Hold>, Duty),
    /// A cohort that is to be renewed.
    Cohort(Arc<Cohort>),
    /// An entry of this hold exceeded its `max_hold`.
    BeyondMaxHold(Arc<Hold>),
}

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

impl Agenda {
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.tracked
            .iter()
            .map(|ByKey(hold)| Arc::clone(hold))
            .collect()
    }

    pub(super) fn count(&self) -> usize {
        self.tracked.len()
    }

    /// Answers the other hold that stood under the same key, if there was one, and whether the
    /// timer sleeps too long for this one.
    pub(super) fn insert(&mut self, hold: &Arc<Hold>, now: Time) -> (Option<Arc<Hold>>, bool) {
        if !hold.is_owned() {
            return (None, false);
        }
        self.part_from(hold);
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
        let wake = self.sleep.is_too_long_for(at, now);
        (former.map(|ByKey(former)| former), wake)
    }

    fn appoint(&mut self, hold: &Arc<Hold>, next: Appointment) {
        self.part_from(hold);
        if let Some(former) = hold.appoint(Some(next)) {
            self.take_out(former.at, hold.owner.sequence());
        }
        self.put_hold(next.at, hold);
    }

    fn cancel(&mut self, hold: &Hold) {
        self.part_from(hold);
        if let Some(former) = hold.appoint(None) {
            self.take_out(former.at, hold.owner.sequence());
        }
    }

    fn put_hold(&mut self, at: Time, hold: &Arc<Hold>) {
        self.put_down(at, hold.owner.sequence(), Due::Hold(Arc::clone(hold)));
    }

    fn put_down(&mut self, at: Time, id: u64, due: Due) {
        let moment = self.by_time.entry(at);
        let moment = moment.or_insert_with(|| std::mem::take(&mut self.spare));
        moment.insert(id, due);
    }

    fn take_out(&mut self, at: Time, id: u64) -> Option<Due> {
        let Entry::Occupied(mut moment) = self.by_time.entry(at) else {
            return None;
        };
        let due = moment.get_mut().remove(&id);
        if moment.get().is_empty() {
            self.spare = moment.remove();
        }
        due
    }

    /// Takes the cohort of that lease out of the agenda, unless it is not there any more.
    fn take_cohort(&mut self, shared: &Arc<SharedLease>) -> Option<Arc<Cohort>> {
        let at = shared.due();
        match self.take_out(at, shared.id)? {
            Due::Cohort(cohort) if Arc::ptr_eq(&cohort.shared, shared) => Some(cohort),
            other => {
                self.put_down(at, shared.id, other);
                None
            }
        }
    }

    /// Has each hold of this hold's cohort looked after by itself.
    fn part_from(&mut self, hold: &Hold) {
        if let Some(shared) = hold.shared_lease() {
            self.part(&shared, shared.due());
        }
    }

    /// Has each hold of the cohort with this lease looked after by itself, and looked at then. Says
    /// whether there was one.
    pub(super) fn part(&mut self, shared: &Arc<SharedLease>, at: Time) -> bool {
        let Some(cohort) = self.take_cohort(shared) else {
            return false;
        };
        for hold in &cohort.holds {
            hold.stand_alone(at);
            self.put_hold(at, hold);
        }
        true
    }

    /// Has those of these holds that were confirmed alike renewed together from now on.
    pub(super) fn join(&mut self, holds: &[Arc<Hold>], batch: &[Renewal], confirmed_at: Time) {
        let mut holds = holds.iter().zip(batch);
        let Some((shared, first)) = holds.find_map(|(hold, renewal)| {
            let (id, due) = (hold.owner.sequence(), hold.appointment()?.at);
            let shared = SharedLease::new(id, renewal.lease, confirmed_at, due);
            let shared = Arc::new(shared);
            hold.share(&shared).then_some((shared, (hold, renewal)))
        }) else {
            return;
        };
        let alike = holds.filter(|(hold, _)| hold.share(&shared));
        let (members, renewals): (Vec<_>, Vec<_>) = iter::once(first)
            .chain(alike)
            .map(|(hold, renewal)| (Arc::clone(hold), renewal.clone()))
            .collect();
        let (id, due) = (shared.id, shared.due());
        for hold in &members {
            self.take_out(due, hold.owner.sequence());
        }
        let cohort = Cohort::new(shared, members, renewals);
        self.put_down(due, id, Due::Cohort(Arc::new(cohort)));
    }

    /// The store confirmed the lease of a whole cohort. Says no if its holds are to be told one by one.
    pub(super) fn cohort_renewed(&mut self, cohort: &Cohort, sent_at: Time, now: Time) -> bool {
        let shared = &cohort.shared;
        if shared.is_spoilt() {
            return false;
        }
        let Some(present) = self.take_cohort(shared) else {
            return false;
        };
        let in_time = shared.confirm(sent_at, now);
        if in_time {
            shared.set_due(cohort.due());
        }
        self.put_down(shared.due(), shared.id, Due::Cohort(present));
        in_time
    }

    pub(super) fn remove_unless_held(&mut self, hold: &Arc<Hold>) {
        // A hold that went on as this one may be there still.
        let Some(tracked) = self.hold(&hold.key).filter(|tracked| !tracked.is_owned()) else {
            return;
        };
        self.tracked.remove(&hold.key);
        self.cancel(&tracked);
    }

    /// The store confirmed a lease: puts the hold down for when it is due next, unless it was
    /// forgotten meanwhile.
    pub(super) fn renewed(&mut self, hold: &Arc<Hold>, sent_at: Time, lease: Duration, now: Time) {
        // A cohort's lease was confirmed by a later answer.
        if hold.shared_lease().is_some() {
            return;
        }
        if let Some((former, next)) = hold.renewed(sent_at, lease, now) {
            self.take_out(former, hold.owner.sequence());
            self.put_hold(next, hold);
        }
    }

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

    /// What is due, and what is to be done about it; all is put down for the next attempt, should this
    /// one fail.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<Came> {
        let mut came = Vec::new();
        while let Some(first) = self.by_time.first_entry() {
            if *first.key() > now {
                break;
            }
            for due in first.remove().into_values() {
                match due {
                    Due::Hold(hold) => self.hold_due(hold, now, &mut came),
                    Due::Cohort(cohort) => self.cohort_due(cohort, now, &mut came),
                }
            }
        }
        came
    }

    fn hold_due(&mut self, hold: Arc<Hold>, now: Time, came: &mut Vec<Came>) {
        for _ in 0..hold.notice_max_hold(now) {
            came.push(Came::BeyondMaxHold(Arc::clone(&hold)));
        }
        let in_line = |sent, pause| self.line.holds(sent, now, pause);
        let (duty, next) = hold.come_due(now, in_line);
        self.put_hold(next, &hold);
        came.push(Came::Hold(hold, duty));
    }

    fn cohort_due(&mut self, cohort: Arc<Cohort>, now: Time, came: &mut Vec<Came>) {
        let in_line = |sent, pause| self.line.holds(sent, now, pause);
        let Some((renew, next)) = cohort.come_due(now, in_line) else {
            for hold in &cohort.holds {
                hold.stand_alone(now);
                self.hold_due(Arc::clone(hold), now, came);
            }
            return;
        };
        cohort.shared.set_due(next);
        let id = cohort.shared.id;
        self.put_down(next, id, Due::Cohort(Arc::clone(&cohort)));
        if renew {
            came.push(Came::Cohort(cohort));
        }
    }

    pub(super) fn first_due(&self) -> Option<Time> {
        self.by_time.first_key_value().map(|(at, _)| *at)
    }

    /// How long the timer is to sleep, `look` at most; `None`: until it is woken.
    pub(super) fn go_to_sleep(&mut self, now: Time, look: Duration) -> Option<Duration> {
        let next = self.first_due();
        self.sleep.begin(next, now, look)
    }
}
