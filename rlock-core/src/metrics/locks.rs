//! Counts the acquires, waits, holds and losses of each lock: the metrics with the label `lock`.

use std::{
    collections::HashMap,
    sync::{
        Once, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Label, with_recorder};
use rlock_proto::{
    lease::Time,
    lost::LostCause,
    machine::{By, HoldEnd},
    mode::LockMode,
    options::Site,
};

use super::{counter, gauge, handles, histogram, label, list};
use crate::{
    limits::{MOST_LABELS, OTHER_LABEL},
    observe::Outcome,
};

/// The label of a lock, and the mode in which it is taken.
type Name = (&'static str, &'static str);

/// The metrics of one value of the label `lock`. In a mode that is not exclusive they have the label `mode`.
#[derive(Debug)]
struct LockMetrics {
    name: Name,
    acquires: [OnceLock<Histogram>; 5],
    holds: [OnceLock<Histogram>; 6],
    waiting: Gauge,
    held: Gauge,
    contended: Counter,
    reentries: Counter,
    lost: [Counter; 5],
    arrivals: [Counter; 4],
}

impl LockMetrics {
    fn new(name: Name) -> &'static Self {
        let of = |other: Option<Label>| labels(name).chain(other).collect::<Vec<_>>();
        with_recorder(|recorder| {
            // In the order of `LostCause`.
            let causes = ["removed", "expired", "max_hold", "revoked", "closed"];
            let lost =
                causes.map(|cause| counter(recorder, list::LOST, of(Some(label("cause", cause)))));
            let ways = ["local", "release", "message", "timer"];
            let arrivals =
                ways.map(|by| counter(recorder, list::ARRIVALS, of(Some(label("by", by)))));
            Box::leak(Box::new(Self {
                name,
                acquires: Default::default(),
                holds: Default::default(),
                waiting: gauge(recorder, list::WAITING, of(None)),
                held: gauge(recorder, list::HELD, of(None)),
                contended: counter(recorder, list::CONTENDED, of(None)),
                reentries: counter(recorder, list::REENTRIES, of(None)),
                lost,
                arrivals,
            }))
        })
    }

    fn acquired(&self, outcome: Outcome, after: Duration) {
        let histogram = self.acquires[outcome as usize].get_or_init(|| {
            self.histogram(list::ACQUIRE_DURATION, label("outcome", outcome.as_str()))
        });
        histogram.record(after);
    }

    fn hold_ended(&self, end: HoldEnd, after: Duration) {
        let histogram = self.holds[end as usize]
            .get_or_init(|| self.histogram(list::HOLD_DURATION, label("end", end.as_str())));
        histogram.record(after);
    }

    fn histogram(&self, name: &'static str, of: Label) -> Histogram {
        histogram(name, labels(self.name).chain([of]).collect())
    }
}

fn labels((name, mode): Name) -> impl Iterator<Item = Label> {
    let is_exclusive = mode == LockMode::Exclusive.as_str();
    let mode = (!is_exclusive).then(|| label("mode", mode));
    [label("lock", name)].into_iter().chain(mode)
}

/// The metrics of all locks, by name.
#[derive(Default)]
pub(super) struct LocksByName(RwLock<HashMap<Name, LockCounters>>);

impl LocksByName {
    fn of(&self, site: Site) -> LockCounters {
        let name = (site.label_or("unnamed"), site.mode.as_str());
        self.known(name).unwrap_or_else(|| self.new_name(name))
    }

    fn known(&self, name: Name) -> Option<LockCounters> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(&name).copied()
    }

    #[cold]
    fn new_name(&self, name: Name) -> LockCounters {
        static WARNED: Once = Once::new();
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_full = names.len() >= MOST_LABELS;
        drop(names);
        let name = if is_full { (OTHER_LABEL, name.1) } else { name };
        let lock = self.known(name).unwrap_or_else(|| {
            // No lock is held while the recorder runs.
            let made = LockCounters(LockMetrics::new(name));
            let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
            *names.entry(name).or_insert(made)
        });
        if is_full {
            WARNED.call_once(|| {
                tracing::warn!(
                    limit = MOST_LABELS,
                    "too many lock labels for metrics: further locks are counted as other"
                );
            });
        }
        lock
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LockCounters(&'static LockMetrics);

pub(crate) fn lock(site: Site) -> LockCounters {
    handles().locks.of(site)
}

impl LockCounters {
    /// Increments the gauge of held locks. [`Held::ends`] decrements it.
    pub(crate) fn holds(self) {
        self.0.held.increment(1.0);
    }

    pub(crate) fn reentered(self) {
        self.0.reentries.increment(1);
    }

    pub(crate) fn lost(self, cause: LostCause) {
        // A release does not count as a loss, so it has no counter.
        if let Some(lost) = self.0.lost.get(cause as usize) {
            lost.increment(1);
        }
    }
}

pub(crate) struct Acquire {
    lock: &'static LockMetrics,
    started: Time,
    /// When the call's hold began, in nanoseconds; 0 before. A nested acquire begins none.
    granted: AtomicU64,
}

impl Acquire {
    pub(crate) fn begin(site: Site, started: Time) -> Self {
        Self {
            lock: lock(site).0,
            started,
            granted: AtomicU64::new(0),
        }
    }

    /// Counts the call as contended and waiting. Call this once.
    pub(crate) fn waits(&self) {
        self.lock.contended.increment(1);
        self.lock.waiting.increment(1.0);
    }

    /// Remembers when the hold began and, if the call waited for it, counts what brought the lock.
    pub(crate) fn holds(
        &self,
        since: impl FnOnce() -> Time,
        waited: bool,
        by: impl FnOnce() -> By,
    ) {
        self.granted.store(since().nanos(), Ordering::Relaxed);
        if waited {
            self.lock.arrivals[by() as usize].increment(1);
        }
    }

    pub(crate) fn ends(&mut self, outcome: Outcome, waited: bool, now: impl FnOnce() -> Time) {
        if waited {
            self.lock.waiting.decrement(1.0);
        } else if outcome == Outcome::Busy {
            self.lock.contended.increment(1);
        }
        let end = match (outcome, *self.granted.get_mut()) {
            (Outcome::Granted, 0) => return,
            (Outcome::Granted, granted) => Time::from_nanos(granted),
            _ => now(),
        };
        self.lock.acquired(outcome, end.since(self.started));
    }
}

/// A hold that is counted as held; none if its end was counted already.
#[derive(Default)]
pub(crate) struct Held(Option<(LockCounters, Time)>);

impl Held {
    pub(crate) fn begin(lock: LockCounters, since: Time) -> Self {
        Self(Some((lock, since)))
    }

    pub(crate) fn ends(self, end: HoldEnd, now: impl FnOnce() -> Time) {
        if let Some((LockCounters(lock), since)) = self.0 {
            lock.held.decrement(1.0);
            lock.hold_ended(end, now().since(since));
        }
    }
}
