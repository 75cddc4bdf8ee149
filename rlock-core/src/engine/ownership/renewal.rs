//! When an ownership is renewed, the watchdog's action when it is due, and what the reply to a renewal confirms.

use std::time::Duration;

use super::{Ownership, Phase, State};
use crate::{
    error::LostCause,
    lease::{Time, next_check, renewal_attempt, renewal_due, valid_until},
};

/// The time after which a lock is renewed that the store granted for less than its lease. A shorter hold saves the
/// request.
const SOON: Duration = Duration::from_millis(20);

/// The renewals of an ownership.
#[derive(Default)]
pub(super) struct Renewals {
    /// How often the lease of the present hold was renewed.
    pub(super) count: u32,
    /// How many were sent, without those that leave the lease as it is.
    sent_ever: u32,
    /// When the latest one was sent, until its reply. A time in the future: by when it is sent.
    pub(super) sent: Option<Time>,
    /// The least lease in milliseconds of those that were open at the same time, of the latest such group.
    least: u32,
}

/// The number of open renewals of an ownership, if one of them has no reply.
const IN_DOUBT: u8 = u8::MAX;

/// The watchdog's action for an ownership that is due.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Reports it as lost: its lease or `max_hold` has ended.
    Lose(LostCause),
    /// Ends the retention.
    EndRetention,
    /// Renews it by this lease. Zero leaves the lease as it is: the reply shows whether the lock still exists.
    Renew(Duration),
    /// Waits for its deadline.
    Wait,
}

impl Ownership {
    /// Notes that a renewal is about to be sent. Returns the confirmed lease, and the least new fence that the renewal
    /// asks for, or 0. Returns `None` if no renewal is wanted.
    pub(crate) fn begin_renewal(&self, lease: Duration, now: Time) -> Option<(Duration, u64)> {
        let mut state = self.state();
        // The batch may have waited until the lease ended. Since then, a nested call may have extended the lease, which this
        // renewal would shorten, or may have asked for renewal.
        let shortens = !lease.is_zero() && state.valid_until > valid_until(now, lease);
        let is_alike = |wanted: Duration| wanted.is_zero() == lease.is_zero() && !shortens;
        let wanted = state.renewal(now).is_some_and(is_alike) && now < state.valid_until;
        state.renewals.sent = wanted.then_some(now);
        state.renewals.sent?;
        state.open_renewal(lease);
        Some((state.confirmed_lease, state.tokens.ask(now)))
    }

    /// Returns how many renewals were sent, if the store has executed each of them.
    pub(crate) fn settled_renewals(&self) -> Option<u32> {
        self.state().settled_renewals()
    }

    /// Returns the lease that the store has confirmed last.
    pub(crate) fn confirmed_lease(&self) -> Duration {
        self.state().confirmed_lease
    }

    /// Notes that a renewal by this lease was abandoned, or lost its lock.
    pub(crate) fn abandon_renewal(&self, lease: Duration) {
        self.state().end_renewal(lease, false);
    }

    /// Confirms the lease and the new fence that the store granted to a renewal sent at `sent_at`, and puts off the
    /// deadline. Returns the next deadline, unless the ownership is not tracked, or has to be checked because a change
    /// was reported since.
    ///
    /// If the lease has ended, a late reply does not revive it, because other owners may have had the lock since.
    pub(crate) fn renewed(
        &self,
        sent_at: Time,
        (lease, fence): (Duration, u64),
        now: Time,
    ) -> Option<Time> {
        let mut state = self.state();
        let is_in_time = now < state.valid_until;
        if is_in_time {
            // An earlier hold may have had a longer lease. The next renewal sets the TTL to the present one.
            let confirmed = lease.min(state.lease);
            state.confirm(sent_at, confirmed);
            state.tokens.renewed(fence, sent_at);
            state.renewals.count = state.renewals.count.saturating_add(1);
        }
        // Not before, because other renewals may have been executed after this one.
        state.end_renewal(lease, true);
        let is_certain = is_in_time && state.doubted_at.is_none() && state.deadline.is_some();
        is_certain.then(|| state.due(now))
    }

    /// Returns the deadline that the schedule lacks for this ownership. Returns `None` if it is not owned, or if an
    /// earlier deadline is scheduled, because that check schedules the next.
    pub(crate) fn missing_deadline(&self, now: Time) -> Option<Time> {
        let state = self.state();
        let at = if state.deadline.is_none() && state.doubted_at.is_some() {
            // A change was reported just before the hold began.
            now
        } else {
            state.due_beside_renewal(now)
        };
        let is_in_time = state.deadline.is_some_and(|present| present <= at);
        (state.is_owned() && !is_in_time).then_some(at)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.state().deadline
    }

    /// Sets when the watchdog checks the ownership next, and returns the previous deadline.
    pub(crate) fn set_deadline(&self, next: Time) -> Option<Time> {
        self.state().deadline.replace(next)
    }

    /// Clears and returns the deadline of an ownership that the client no longer owns.
    pub(crate) fn untrack(&self) -> Option<Time> {
        let mut state = self.state();
        if state.is_owned() {
            None
        } else {
            state.deadline.take()
        }
    }

    /// Returns the action for an ownership that is due, and the next deadline, which counts if the action fails.
    pub(crate) fn come_due(&self, now: Time) -> (Action, Time) {
        let mut state = self.state();
        let end = state.valid_until;
        let (action, next) = if now >= state.end_of_retention() {
            (Action::EndRetention, end)
        } else if let Some(cause) = state.unnoticed_end(now) {
            (Action::Lose(cause), end)
        } else if state.doubted_at.is_none()
            && state.confirmed_lease >= state.lease
            && now < state.due(now)
        {
            // An earlier hold needed this check.
            (Action::Wait, state.due(now))
        } else if let Some(lease) = state.renewal(now) {
            let pause = renewal_attempt(state.confirmed_lease);
            state.renewals.sent = Some(now + pause * 2);
            (Action::Renew(lease), (now + pause).min(end))
        } else {
            (Action::Wait, end)
        };
        let next = next.min(state.end_of_retention()).min(state.end_of_hold());
        let at = next_check(next, now);
        state.deadline = Some(at);
        (action, at)
    }
}

impl State {
    pub(super) fn settled_renewals(&self) -> Option<u32> {
        (self.open_renewals == 0).then_some(self.renewals.sent_ever)
    }

    fn open_renewal(&mut self, lease: Duration) {
        // A lease of zero does not change the TTL.
        if lease.is_zero() {
            return;
        }
        let millis = u32::try_from(lease.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX);
        self.renewals.least = match self.open_renewals {
            0 => millis,
            _ => millis.min(self.renewals.least),
        };
        self.renewals.sent_ever = self.renewals.sent_ever.wrapping_add(1);
        self.open_renewals = self.open_renewals.saturating_add(1);
    }

    /// Notes that a renewal by this lease has ended. If it may be executed later, it counts as open for good.
    fn end_renewal(&mut self, lease: Duration, is_executed: bool) {
        self.renewals.sent = None;
        self.tokens.end_wish();
        self.open_renewals = match self.open_renewals {
            open if open == IN_DOUBT || lease.is_zero() => open,
            open if is_executed => open.saturating_sub(1),
            _ => IN_DOUBT,
        };
    }

    /// Returns the longest lease that a request confirms. An open renewal may be executed after it, and then sets the TTL
    /// to its own lease.
    pub(super) fn longest_confirmed(&self) -> Duration {
        match self.open_renewals {
            0 => Duration::MAX,
            _ => Duration::from_millis(self.renewals.least.into()),
        }
    }

    /// The end of the lease, of the `max_hold` or of the retention.
    fn end(&self) -> Time {
        let end = self.valid_until.min(self.end_of_hold());
        end.min(self.end_of_retention())
    }

    /// The end of the `max_hold`, if the hold is not lost.
    fn end_of_hold(&self) -> Time {
        match self.lost {
            None => self.hold_until,
            Some(_) => Time::NEVER,
        }
    }

    /// Returns the cause if the hold or the ownership has ended by the clock, and that was not noticed yet.
    fn unnoticed_end(&self, now: Time) -> Option<LostCause> {
        match self.lost {
            None => self.ended(now),
            Some(_) => (now >= self.valid_until).then_some(LostCause::Expired),
        }
    }

    /// Returns when the ownership is due, or when a renewal that is under way may be repeated: a hold that begins
    /// meanwhile does not send another.
    fn due_beside_renewal(&self, now: Time) -> Time {
        let due = self.due(now);
        let pause = renewal_attempt(self.confirmed_lease);
        let again = |sent: Time| (sent.min(now) + pause).min(self.end());
        self.renewals.sent.map_or(due, |sent| due.max(again(sent)))
    }

    fn due(&self, now: Time) -> Time {
        let end = self.end();
        if !self.wants_renewal(now) {
            return end;
        }
        if self.tokens.is_fence_due() {
            return now;
        }
        let due = renewal_due(self.confirmed_at, self.confirmed_lease).min(end);
        if self.confirmed_lease < self.lease.min(self.longest_confirmed()) {
            due.min(now + SOON)
        } else {
            due
        }
    }

    /// Returns the lease of the renewal to send: zero for a hold that is in doubt and not renewed.
    fn renewal(&self, now: Time) -> Option<Duration> {
        if self.wants_renewal(now) {
            return Some(self.lease);
        }
        let is_doubted = self.phase == Phase::Held && self.doubted_at.is_some();
        is_doubted.then_some(Duration::ZERO)
    }

    fn wants_renewal(&self, now: Time) -> bool {
        match self.phase {
            Phase::Held => now < self.hold_until && self.entries.iter().any(|entry| entry.renewed),
            Phase::Retained => true,
            // A caller that is not polled must not keep the lock.
            Phase::Passed => self.tokens.is_fence_due(),
            Phase::Requested | Phase::Lost | Phase::Ended => false,
        }
    }

    fn end_of_retention(&self) -> Time {
        match self.phase {
            Phase::Retained => self.retained_until,
            _ => Time::NEVER,
        }
    }
}
