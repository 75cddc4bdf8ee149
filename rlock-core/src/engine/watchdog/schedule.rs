//! The schedule of the watchdog: when it checks which ownership.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    engine::ownership::{Action, Ownership},
    lease::Time,
};

/// All tracked ownerships by [`Ownership::deadline`]. The owner's sequence number distinguishes ownerships that are due
/// at the same time.
#[derive(Default)]
pub(super) struct Schedule {
    by_time: BTreeMap<(Time, u64), Arc<Ownership>>,
    /// When the timer wakes up by itself.
    wakes_at: Option<Time>,
    /// Whether an ownership was tracked since the timer went to sleep.
    has_grown: bool,
}

impl Schedule {
    pub(super) fn ownerships(&self) -> Vec<Arc<Ownership>> {
        self.by_time.values().cloned().collect()
    }

    pub(super) fn count(&self) -> usize {
        self.by_time.len()
    }

    /// Tracks an ownership, or checks it earlier. Returns whether the timer has to wake up earlier.
    pub(super) fn track(&mut self, ownership: &Arc<Ownership>, now: Time) -> bool {
        // Read again, because it may have ended, or come due, meanwhile.
        let Some(next) = ownership.missing_deadline(now) else {
            return false;
        };
        self.set_deadline(ownership, next);
        self.has_grown = true;
        // A timer that is late stood still while the machine slept, and may fire at any time.
        self.wakes_at.is_none_or(|at| next < at || at < now)
    }

    /// Stops tracking an ownership, unless the client still owns it: a nested acquire may have entered it just now.
    pub(super) fn forget(&mut self, ownership: &Arc<Ownership>) {
        if let Some(former) = ownership.untrack() {
            self.by_time.remove(&(former, ownership.owner.sequence()));
        }
    }

    fn set_deadline(&mut self, ownership: &Arc<Ownership>, next: Time) {
        let sequence = ownership.owner.sequence();
        if let Some(former) = ownership.set_deadline(next) {
            self.by_time.remove(&(former, sequence));
        }
        self.by_time.insert((next, sequence), Arc::clone(ownership));
    }

    /// Confirms the lease of an ownership, and postpones its deadline if it is still tracked.
    pub(super) fn renewed(
        &mut self,
        ownership: &Arc<Ownership>,
        sent_at: Time,
        lease_and_fence: (Duration, u64),
        now: Time,
    ) {
        if let Some(next) = ownership.renewed(sent_at, lease_and_fence, now) {
            self.set_deadline(ownership, next);
        }
    }

    /// Schedules a check for now, because another client changed the lock.
    pub(super) fn suspect(&mut self, ownership: &Arc<Ownership>, now: Time) {
        if ownership.deadline().is_some() {
            self.set_deadline(ownership, now);
        }
    }

    /// Returns the ownerships that are due, with the action for each, and schedules the next attempt.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(Arc<Ownership>, Action)> {
        let mut due = Vec::new();
        while let Some(first) = self.by_time.first_entry() {
            let (at, sequence) = *first.key();
            if at > now {
                break;
            }
            let ownership = first.remove();
            let (action, next) = ownership.come_due(now);
            self.by_time
                .insert((next, sequence), Arc::clone(&ownership));
            due.push((ownership, action));
        }
        due
    }

    pub(super) fn first_due(&self) -> Option<Time> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns how long the timer sleeps, at most `longest`. `None`: until it is woken.
    ///
    /// Most ownerships are released before they are due. While some come and go, the timer therefore wakes up by
    /// itself: waking it would cost each acquire a switch of threads.
    pub(super) fn go_to_sleep(&mut self, now: Time, longest: Duration) -> Option<Duration> {
        let latest = now + longest;
        let has_grown = std::mem::take(&mut self.has_grown);
        let next = self.first_due().or(has_grown.then_some(latest));
        self.wakes_at = next.map(|next| next.min(latest));
        self.wakes_at.map(|at| at.since(now))
    }
}
