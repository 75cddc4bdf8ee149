//! Which hold is to be looked at when.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{
    hold::Hold,
    key::Key,
    lease::{Time, renewal_attempt},
};

pub(super) struct Agenda {
    tracked: HashMap<Key, Tracked>,
    by_time: BTreeMap<(Time, u64), Key>,
    next_id: u64,
    /// Until when the timer sleeps at most.
    sleeps_until: Time,
}

struct Tracked {
    hold: Arc<Hold>,
    due: Time,
    id: u64,
    /// Somebody else changed the lock, so it is to be looked at even if it is not renewed.
    suspect: bool,
}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            tracked: HashMap::new(),
            by_time: BTreeMap::new(),
            next_id: 0,
            sleeps_until: Time::NEVER,
        }
    }
}

impl Agenda {
    fn tracks(&self, hold: &Arc<Hold>) -> bool {
        self.tracked
            .get(&hold.key)
            .is_some_and(|tracked| Arc::ptr_eq(&tracked.hold, hold))
    }

    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.tracked
            .values()
            .map(|tracked| Arc::clone(&tracked.hold))
            .collect()
    }

    /// Answers the other hold that stood under the same key, if there was one, and whether the
    /// timer sleeps too long for this one.
    pub(super) fn insert(&mut self, hold: &Arc<Hold>) -> (Option<Arc<Hold>>, bool) {
        if !hold.is_held() {
            return (None, false);
        }
        // What was heard of this hold and not yet looked at is still to be looked at.
        let suspect =
            self.tracks(hold) && self.tracked.get(&hold.key).is_some_and(|held| held.suspect);
        let due = if suspect { Time::now() } else { hold.due() };
        let former = self.remove(&hold.key);
        let id = self.next_id;
        self.next_id += 1;
        self.by_time.insert((due, id), hold.key.clone());
        let tracked = Tracked {
            hold: Arc::clone(hold),
            due,
            id,
            suspect,
        };
        self.tracked.insert(hold.key.clone(), tracked);
        (
            former.filter(|former| !Arc::ptr_eq(former, hold)),
            due < self.sleeps_until,
        )
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Hold>> {
        let tracked = self.tracked.remove(key)?;
        self.by_time.remove(&(tracked.due, tracked.id));
        Some(tracked.hold)
    }

    pub(super) fn remove_unless_held(&mut self, hold: &Arc<Hold>) {
        if self.tracks(hold) && !hold.is_held() {
            self.remove(&hold.key);
        }
    }

    fn reschedule(&mut self, key: &Key, due: Time) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            self.by_time.remove(&(tracked.due, tracked.id));
            tracked.due = due;
            self.by_time.insert((due, tracked.id), key.clone());
        }
    }

    /// Puts a hold down for when it is due next, unless it was forgotten meanwhile, or something was
    /// heard of it that is still to be looked at.
    pub(super) fn retrack(&mut self, hold: &Arc<Hold>) {
        let suspect = self.tracked.get(&hold.key).is_some_and(|held| held.suspect);
        if self.tracks(hold) && !suspect {
            self.reschedule(&hold.key, hold.due());
        }
    }

    /// Whether news of this key are the echo of our own renewal.
    #[cfg(feature = "redis")]
    pub(super) fn is_echo(&self, key: &Key) -> bool {
        let tracked = self.tracked.get(key);
        tracked.is_some_and(|tracked| tracked.hold.is_echo())
    }

    pub(super) fn suspect(&mut self, key: &Key, due: Time) {
        self.reschedule(key, due);
        if let Some(tracked) = self.tracked.get_mut(key) {
            tracked.suspect = true;
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn suspect_all(&mut self, due: Time) {
        let keys: Vec<Key> = self.tracked.keys().cloned().collect();
        for key in keys {
            self.suspect(&key, due);
        }
    }

    /// Has these holds looked at then, or when they are due.
    pub(super) fn verify(&mut self, holds: &[Arc<Hold>], at: Time) {
        for hold in holds {
            if self.tracks(hold) {
                self.suspect(&hold.key, at.min(hold.due()));
            }
        }
    }

    /// The holds that are due, and whether they are suspect; each is put down for its next attempt,
    /// should this one fail.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(Arc<Hold>, bool)> {
        let mut taken = Vec::new();
        while let Some(((due, _), key)) = self.by_time.first_key_value() {
            if *due > now {
                break;
            }
            let key = key.clone();
            let Some(tracked) = self.tracked.get_mut(&key) else {
                self.by_time.pop_first();
                continue;
            };
            let hold = Arc::clone(&tracked.hold);
            taken.push((Arc::clone(&hold), std::mem::take(&mut tracked.suspect)));
            let next = (now + renewal_attempt(hold.confirmed_lease())).min(hold.valid_until());
            self.reschedule(&key, next.max(now + Duration::from_micros(100)));
        }
        taken
    }

    pub(super) fn first_due(&self) -> Option<Time> {
        self.by_time.first_key_value().map(|((due, _), _)| *due)
    }

    /// Notes until when the timer sleeps, `look` at most; `None`: until it is woken.
    pub(super) fn go_to_sleep(&mut self, look: Duration) -> Option<Duration> {
        let now = Time::now();
        let next = self.first_due();
        self.sleeps_until = next.map_or(Time::NEVER, |due| due.min(now + look));
        next.map(|_| self.sleeps_until.since(now))
    }
}
