//! When an ownership is renewed, and what the reply to a renewal confirms.

use std::time::Duration;

use super::{
    hold::Hold,
    ownership::{Ownership, Phase},
};
use crate::{
    lease::{Time, next_check, renewal_attempt, renewal_due},
    lost::LostCause,
};

/// The time after which a lock is renewed that the store granted for less than its lease. A shorter hold saves the
/// request.
const SOON: Duration = Duration::from_millis(20);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The lease or the `max_hold` has ended.
    Lost(LostCause),
    /// A renewal by this lease. Zero leaves the lease as it is: the reply shows whether the lock still exists.
    Renewal(Duration),
    Nothing,
}

impl Ownership {
    /// Returns what is due.
    pub(super) fn come_due(&self, now: Time) -> Due {
        let (end, due) = self.end_by_clock();
        match self.renewal(now) {
            _ if now >= end => due,
            Some(lease) if now >= self.renewal_due(now) => Due::Renewal(lease),
            _ => Due::Nothing,
        }
    }

    /// Returns when the hold or the ownership ends by the clock, and how, if that was not noticed yet.
    fn end_by_clock(&self) -> (Time, Due) {
        match self.phase() {
            Phase::Held if self.lost.is_none() && self.hold_until() <= self.valid_until => {
                (self.hold_until(), Due::Lost(LostCause::MaxHold))
            }
            Phase::Held | Phase::Retained => match self.retained_until() {
                Some(until) if until < self.valid_until => (until, Due::Nothing),
                _ => (self.valid_until, Due::Lost(LostCause::Expired)),
            },
            Phase::Asking | Phase::HandedOver | Phase::Lost | Phase::Ended => {
                (Time::NEVER, Due::Nothing)
            }
        }
    }

    /// Returns when the schedule has to look at it.
    pub(super) fn next_due(&self, now: Time, counts: bool) -> Time {
        let (end, _) = self.end_by_clock();
        let renewal = self.renewal(now).map(|_| self.renewal_due(now));
        let due = end.min(renewal.unwrap_or(Time::NEVER));
        next_check(due.min(self.count_due(counts)), now)
    }

    fn wants_renewals(&self) -> bool {
        self.hold().is_some_and(Hold::wants_renewals)
    }

    /// Returns the lease of the next renewal: zero for a hold that is in doubt and not renewed.
    fn renewal(&self, now: Time) -> Option<Duration> {
        match self.phase() {
            // A caller that is not polled must not keep the lock.
            Phase::Asking | Phase::HandedOver | Phase::Lost | Phase::Ended => None,
            Phase::Retained => Some(self.lease),
            Phase::Held if self.wants_renewals() && now < self.hold_until() => Some(self.lease),
            Phase::Held => self.doubted_at.map(|_| Duration::ZERO),
        }
    }

    /// Returns when the next renewal is due: later, if one is under way.
    fn renewal_due(&self, now: Time) -> Time {
        let mut due = renewal_due(self.confirmed_at, self.confirmed_lease);
        if self.confirmed_lease < self.lease {
            due = due.min(self.confirmed_at + SOON);
        }
        if self.is_checked || self.tokens.is_fence_due() {
            due = now;
        }
        let pause = renewal_attempt(self.confirmed_lease);
        let sent = self.renewal_sent.map(|sent| sent + pause);
        due.max(sent.unwrap_or(due))
    }

    /// Notes that a renewal is sent. Returns the least new fence that it asks for, or 0.
    pub(super) fn begin_renewal(&mut self, now: Time) -> u64 {
        self.renewal_sent = Some(now);
        self.tokens.ask()
    }

    /// Confirms the lease and the new fence that the store granted to a renewal sent at `sent_at`. If the lease has ended,
    /// a late reply does not revive it, because other owners may have had the lock since.
    pub(super) fn renewed(&mut self, sent_at: Time, lease: Duration, fence: u64, now: Time) {
        if now < self.valid_until {
            self.confirm(sent_at, lease);
            self.tokens.renewed(fence, sent_at, lease);
            if let Some(hold) = self.hold_mut() {
                hold.renewals = hold.renewals.saturating_add(1);
            }
            self.renewal_sent = None;
        }
    }
}
