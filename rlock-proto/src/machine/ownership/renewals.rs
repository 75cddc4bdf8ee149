//! When a lease is renewed, how a holder extends it, and when it ends the hold.

use std::time::Duration;

use super::{
    Ownership,
    phase::{Purpose, Status},
};
use crate::{
    key::Key,
    lease::{Time, next_check, renewal_due, renewal_retry, valid_until},
    lost::LostCause,
    machine::{Settings, SlotId, output::Renew, timer::Timer},
    mode::LockMode,
    store::{Grant, RenewalOutcome},
};

/// The time after which a lock is renewed that the store granted for less than its lease. A shorter hold saves the
/// request.
const SOON: Duration = Duration::from_millis(20);

/// The lease of an ownership, as far as the store has confirmed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    /// The lease of the hold, and of its renewals. Nested calls share it.
    full: Duration,
    /// The longest lease that was asked for. The store may keep the lock for it, even after a holder has shortened the lease.
    longest: Duration,
    /// Whether a holder has changed the lease. Then the ownership serves no other hold.
    is_changed: bool,
    /// The last lease that the store confirmed as the TTL, and when its request was sent.
    pub(super) confirmed: Duration,
    confirmed_at: Time,
    pub(super) valid_until: Time,
    /// When the latest renewal was sent, until the store confirms one. The next one follows after a pause.
    pub(super) renewal_sent: Option<Time>,
}

impl Lease {
    pub(super) fn new(full: Duration) -> Self {
        Self {
            full,
            longest: full,
            is_changed: false,
            confirmed: full,
            confirmed_at: Time::default(),
            valid_until: Time::default(),
            renewal_sent: None,
        }
    }

    /// Asks for this lease at least.
    pub(super) fn ask_for(&mut self, lease: Duration) {
        self.full = self.full.max(lease);
        self.longest = self.longest.max(lease);
    }

    /// Returns whether it is the lease of the call that the hold began with.
    pub(super) fn is_as_granted(&self) -> bool {
        !self.is_changed
    }

    /// Returns when the lock has ended at the store if the last request for it is executed now.
    pub(super) fn longest_end(&self, now: Time) -> Time {
        now + self.longest
    }

    /// Begins with a grant of the store or of the hold before.
    pub(super) fn begin(&mut self, full: Duration, grant: Grant) {
        (self.full, self.confirmed) = (full, grant.ttl.min(full));
        self.confirmed_at = grant.since;
        self.valid_until = valid_until(grant.since, self.confirmed);
    }

    /// Sets the lease. A hold that was confirmed for longer ends with it, even if the store is not asked.
    fn set(&mut self, lease: Duration, now: Time) {
        self.is_changed |= lease != self.full;
        self.full = lease;
        self.longest = self.longest.max(lease);
        let end = valid_until(now, lease);
        if end <= self.valid_until {
            (self.confirmed, self.confirmed_at, self.valid_until) = (lease, now, end);
        }
    }

    /// Records the lease that the store confirmed for a request sent at `sent_at`. A late reply does not undo that the lease was
    /// shortened since.
    fn confirm(&mut self, sent_at: Time, lease: Duration) {
        let lease = lease.min(self.full);
        // Both from one request, because replies may overtake each other: the one whose lease ends last.
        if sent_at + lease >= self.confirmed_at + self.confirmed && !lease.is_zero() {
            (self.confirmed, self.confirmed_at) = (lease, sent_at);
        }
        self.lasts(sent_at, lease);
    }

    /// Prolongs the validity: a request sent at `sent_at` has kept the lock for this lease at least. The renewals go on as before.
    fn lasts(&mut self, sent_at: Time, lease: Duration) {
        let end = valid_until(sent_at, lease.min(self.full));
        self.valid_until = self.valid_until.max(end);
    }

    /// Returns it as a grant, as it was confirmed last.
    pub(super) fn confirmed(&self) -> Grant {
        Grant {
            fence: 0,
            since: self.confirmed_at,
            ttl: self.confirmed,
            wanted: false,
        }
    }

    /// Returns whether enough of a lease like this remains to renew it.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.confirmed().is_fresh(self.full, now)
    }

    /// Returns when the next renewal is due: later, if one is under way.
    fn renewal_due(&self, is_urgent: bool, now: Time) -> Time {
        let mut due = renewal_due(self.confirmed_at, self.confirmed);
        if self.confirmed < self.full {
            due = due.min(self.confirmed_at + SOON);
        }
        if is_urgent {
            due = now;
        }
        let pause = renewal_retry(self.confirmed);
        let sent = self.renewal_sent.map(|sent| sent + pause);
        due.max(sent.unwrap_or(due))
    }
}

/// What an ownership is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Due {
    /// The lease or the `max_hold` has ended.
    Lost(LostCause),
    /// A renewal by this lease. Zero leaves the lease as it is: the reply shows whether the lock still exists.
    Renewal(Duration),
    Nothing,
}

impl Ownership {
    /// Returns what is due.
    pub(in crate::machine) fn due_for(&self, now: Time) -> Due {
        let (end, due) = self.time_out();
        match self.renewal(now) {
            _ if now >= end => due,
            Some(lease) if now >= self.renewal_due(now) => Due::Renewal(lease),
            _ => Due::Nothing,
        }
    }

    /// Returns when its retention, its hold or its lease ends, and what is due then, if that was not noticed yet.
    fn time_out(&self) -> (Time, Due) {
        let (limit, cause) = match self.lost {
            None => self.time_limit(),
            Some(_) => (self.lease.valid_until, LostCause::Expired),
        };
        match self.status {
            Status::Owned(_, Purpose::Retention(until)) if until < limit => (until, Due::Nothing),
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_)) => (limit, Due::Lost(cause)),
            _ => (Time::NEVER, Due::Nothing),
        }
    }

    /// Returns when the schedule has to look at it.
    pub(in crate::machine) fn next_due(&self, now: Time, request_due: Time) -> (Time, Timer) {
        let (end, what) = self.time_out();
        let ends_by = match what {
            Due::Lost(LostCause::MaxHold) => Timer::MaxHold,
            Due::Nothing => Timer::RetentionEnd,
            _ => Timer::LeaseEnd,
        };
        let asks_for = match self.status.release() {
            Some(_) => Timer::Release,
            None => Timer::Count,
        };
        let renewal = self
            .renewal(now)
            .map_or(Time::NEVER, |_| self.renewal_due(now));
        let deadlines = [
            (end, ends_by),
            (renewal, Timer::Renewal),
            (request_due, asks_for),
        ];
        let (due, timer) = deadlines.into_iter().min().unwrap_or((end, ends_by));
        (next_check(due, now), timer)
    }

    /// Returns the lease of the next renewal: zero for a hold that is in doubt and not renewed.
    fn renewal(&self, now: Time) -> Option<Duration> {
        match &self.status {
            Status::Owned(hold, Purpose::Hold) if hold.wants_renewals() && now < hold.until => {
                Some(self.lease.full)
            }
            Status::Owned(_, Purpose::Hold) => {
                (self.doubt.must_be_confirmed()).then_some(Duration::ZERO)
            }
            Status::Owned(_, Purpose::Retention(_)) => Some(self.lease.full),
            // A caller that is not polled must not keep the lock.
            Status::Asking
            | Status::Owned(_, Purpose::NextCall)
            | Status::Lost(_)
            | Status::Ended(..) => None,
        }
    }

    fn renewal_due(&self, now: Time) -> Time {
        let is_urgent = self.doubt.is_urgent() || self.tokens.is_fence_due();
        self.lease.renewal_due(is_urgent, now)
    }

    /// Begins a renewal by this lease. It carries what a quorum needs to restore the lock at a member that lacks it.
    pub(in crate::machine) fn begin_renewal(
        &mut self,
        slot: SlotId,
        key: Key,
        lease: Duration,
        settings: &Settings,
        now: Time,
    ) -> Renew {
        self.lease.renewal_sent = Some(now);
        let fence = self.tokens.ask(settings.needs_majority, now);
        let keeps_fence =
            fence == 0 && (self.tokens).ask_to_keep(lease, settings.fence_retention, now);
        let is_needed = keeps_fence || settings.needs_majority;
        let is_counted = is_needed && settings.counts_entries && self.used() == LockMode::Exclusive;
        Renew {
            fence,
            last_fence: if is_needed { self.tokens.fence() } else { 0 },
            keeps_fence,
            count: if is_counted { self.entries().max(1) } else { 1 },
            slot,
            key,
            owner: self.owner,
            mode: self.mode,
            lease,
            confirmed: self.lease.confirmed,
            rest: self.rest(now),
        }
    }

    /// Sets the lease of the hold, from now on, and begins the renewal that asks the store for it. If several holds share the
    /// ownership, the lease only grows, because the others rely on it.
    pub(in crate::machine) fn extend(
        &mut self,
        slot: SlotId,
        key: Key,
        lease: Duration,
        settings: &Settings,
        now: Time,
    ) -> Renew {
        let is_alone = self.hold().is_none_or(|hold| hold.firsts().len() < 2);
        let before = self.lease.full;
        let lease = if is_alone { lease } else { lease.max(before) };
        self.lease.set(lease, now);
        self.begin_renewal(slot, key, lease, settings, now)
    }

    /// Returns the lease of the hold.
    pub(in crate::machine) fn lease(&self) -> Duration {
        self.lease.full
    }

    /// Prolongs the validity: a count sent at `sent_at` keeps the lock for this lease at least. That puts no
    /// renewal off, because only renewals show that others wait, and make a quorum restore the lock.
    pub(super) fn kept(&mut self, sent_at: Time, lease: Duration, now: Time) {
        if !self.rest(now).is_zero() {
            self.lease.lasts(sent_at, lease);
        }
    }

    /// Applies the reply to a renewal. Returns the cause if the lock is lost.
    pub(in crate::machine) fn renewed(
        &mut self,
        renew: &Renew,
        sent_at: Time,
        outcome: Option<RenewalOutcome>,
        now: Time,
    ) -> Option<LostCause> {
        if let Some(RenewalOutcome::Held { fence, .. }) = outcome {
            self.confirmed(sent_at, renew.lease, fence, now);
        }
        self.tokens.end_wish();
        // The store may execute a renewal of the exclusive lock after a downgrade has made the lock a shared one.
        let is_outdated = renew.mode != self.mode;
        let is_lost = matches!(outcome, Some(RenewalOutcome::Lost)) && !is_outdated;
        is_lost.then(|| self.timed_out(now).unwrap_or(LostCause::Removed))
    }

    /// Confirms the lease and the new fence that the store granted to a renewal sent at `sent_at`. A late reply does not revive
    /// a lease that has ended, because other owners may have had the lock since.
    pub(in crate::machine) fn confirmed(
        &mut self,
        sent_at: Time,
        lease: Duration,
        fence: u64,
        now: Time,
    ) {
        if !self.rest(now).is_zero() {
            self.lease.confirm(sent_at, lease);
            self.doubt.found(sent_at);
            self.tokens.renewed(fence, sent_at, lease);
            self.tokens.kept(sent_at, lease);
            if let Some(hold) = self.hold_mut() {
                hold.renewals = hold.renewals.saturating_add(1);
            }
            self.lease.renewal_sent = None;
        }
    }
}
