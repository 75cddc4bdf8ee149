//! When the watchdog checks which hold.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{backlog::Backlog, sleep::Sleep};
use crate::store::Which;
use crate::{
    hold::{Action, Deadline, Hold},
    key::Key,
    lease::Time,
};

/// All tracked holds, by key and by deadline.
#[derive(Default)]
pub(super) struct Schedule {
    tracked: HashMap<Key, Arc<Hold>>,
    /// Each tracked hold once, at [`Hold::deadline`]. The owner's sequence number tells apart holds that
    /// are due at the same time.
    by_time: BTreeMap<(Time, u64), Arc<Hold>>,
    pub(super) backlog: Backlog,
    sleep: Sleep,
}

/// A hold that is due.
pub(super) struct Due {
    pub(super) hold: Arc<Hold>,
    pub(super) action: Action,
    /// The number of entries whose `max_hold` has ended since the last check.
    pub(super) beyond_max_hold: usize,
}

impl Schedule {
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.tracked.values().cloned().collect()
    }

    pub(super) fn hold(&self, key: &Key) -> Option<Arc<Hold>> {
        self.tracked.get(key).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.tracked.len()
    }

    /// Tracks a hold, or updates its deadline. Returns the hold of another owner that was tracked under
    /// the same key, and whether the timer has to wake up earlier.
    pub(super) fn insert(&mut self, hold: &Arc<Hold>, now: Time) -> (Option<Arc<Hold>>, bool) {
        if !hold.is_owned() {
            return (None, false);
        }
        let present = hold.deadline();
        let former = match present {
            Some(_) => None,
            None => self.tracked.insert(hold.key.clone(), Arc::clone(hold)),
        };
        if let Some(former) = &former {
            self.set_deadline(former, None);
        }
        // A change that was reported and not checked yet is checked at once.
        let suspect = present.is_some_and(|deadline| deadline.suspect);
        let at = if suspect { now } else { hold.due() };
        let next = Deadline { at, suspect };
        // A nested entry seldom changes the deadline.
        if present != Some(next) {
            self.set_deadline(hold, Some(next));
        }
        (former, self.sleep.is_too_long_for(at, now))
    }

    /// Stops tracking the hold of this key, unless it is held or retained.
    pub(super) fn remove_unless_held(&mut self, hold: &Arc<Hold>) {
        // An earlier hold of the same ownership may still be tracked.
        let tracked = self.hold(&hold.key);
        if let Some(ended) = tracked.filter(|tracked| !tracked.is_owned()) {
            self.tracked.remove(&hold.key);
            self.set_deadline(&ended, None);
        }
    }

    fn set_deadline(&mut self, hold: &Arc<Hold>, next: Option<Deadline>) {
        let sequence = hold.owner.sequence();
        if let Some(former) = hold.set_deadline(next) {
            self.by_time.remove(&(former.at, sequence));
        }
        if let Some(next) = next {
            self.by_time.insert((next.at, sequence), Arc::clone(hold));
        }
    }

    /// Confirms the lease of a hold, and puts off its deadline if the hold is still tracked.
    pub(super) fn renewed(&mut self, hold: &Arc<Hold>, sent_at: Time, lease: Duration, now: Time) {
        let next = hold.renewed(sent_at, lease, now);
        // A change that was reported since the renewal was sent is still to be checked.
        let may_wait = hold.deadline().is_some_and(|deadline| !deadline.suspect);
        if let Some(at) = next.filter(|_| may_wait) {
            let suspect = false;
            self.set_deadline(hold, Some(Deadline { at, suspect }));
        }
    }

    /// Has a hold checked at this time because another client changed the lock.
    pub(super) fn suspect(&mut self, hold: &Arc<Hold>, at: Time) {
        if hold.deadline().is_some() {
            let suspect = true;
            self.set_deadline(hold, Some(Deadline { at, suspect }));
        }
    }

    pub(super) fn suspect_all(&mut self, which: &Which, at: Time) {
        for hold in self.holds().iter().filter(|hold| which.has(&hold.key)) {
            self.suspect(hold, at);
        }
    }

    /// Has these holds verified at this time, or when they are due.
    pub(super) fn verify(&mut self, holds: &[Arc<Hold>], at: Time) {
        for hold in holds {
            self.suspect(hold, at.min(hold.due()));
        }
    }

    /// Returns the holds that are due, and schedules the next attempt for each.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some(first) = self.by_time.first_entry() {
            let (at, sequence) = *first.key();
            if at > now {
                break;
            }
            let hold = first.remove();
            let beyond_max_hold = hold.notice_max_hold(now);
            let is_queued = |sent, silence| self.backlog.has(sent, now, silence);
            let (action, next) = hold.come_due(now, is_queued);
            self.by_time.insert((next, sequence), Arc::clone(&hold));
            due.push(Due {
                hold,
                action,
                beyond_max_hold,
            });
        }
        due
    }

    pub(super) fn first_due(&self) -> Option<Time> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns how long the timer sleeps, `longest` at most. `None`: until it is woken.
    pub(super) fn go_to_sleep(&mut self, now: Time, longest: Duration) -> Option<Duration> {
        let next = self.first_due();
        self.sleep.begin(next, now, longest)
    }
}
