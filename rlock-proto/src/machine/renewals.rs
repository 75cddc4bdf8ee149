//! The lease of an ownership, and when it is renewed.

use std::time::Duration;

use crate::{
    lease::{Time, renewal_attempt, renewal_due, valid_until},
    store::Grant,
};

/// The time after which a lock is renewed that the store granted for less than its lease. A shorter hold saves the
/// request.
const SOON: Duration = Duration::from_millis(20);

/// The lease of an ownership, as far as the store has confirmed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    /// The lease of the holds, and of all renewals. Nested calls share it.
    pub(super) full: Duration,
    /// The last lease that the store confirmed as the TTL, and when its request was sent.
    pub(super) confirmed: Duration,
    confirmed_at: Time,
    pub(super) valid_until: Time,
    /// When a change by another client was reported, or reports stopped, or a request failed, until a later request
    /// confirms the ownership.
    doubted_at: Option<Time>,
    /// Whether the next renewal is due because of a doubt.
    is_checked: bool,
    /// When the latest renewal was sent, until the store confirms one. The next attempt follows after a pause.
    pub(super) renewal_sent: Option<Time>,
}

impl Lease {
    pub(super) fn new(full: Duration) -> Self {
        Self {
            full,
            confirmed: full,
            confirmed_at: Time::default(),
            valid_until: Time::default(),
            doubted_at: None,
            is_checked: false,
            renewal_sent: None,
        }
    }

    /// Begins with a grant of the store or of the hold before.
    pub(super) fn begin(&mut self, full: Duration, grant: Grant) {
        (self.full, self.confirmed) = (full, grant.ttl.min(full));
        self.confirmed_at = grant.since;
        self.valid_until = valid_until(grant.since, self.confirmed);
        self.end_doubt(grant.since);
    }

    /// Notes that the store confirmed this lease for a request sent at `sent_at`.
    pub(super) fn confirm(&mut self, sent_at: Time, lease: Duration) {
        // Both from one request, because replies may overtake each other: the one whose lease ends last.
        if sent_at + lease >= self.confirmed_at + self.confirmed && !lease.is_zero() {
            (self.confirmed, self.confirmed_at) = (lease, sent_at);
        }
        self.extend(sent_at, lease);
    }

    /// Notes that a request sent at `sent_at` has kept the lock for this lease at least. The renewals go on as before.
    pub(super) fn extend(&mut self, sent_at: Time, lease: Duration) {
        self.valid_until = self.valid_until.max(valid_until(sent_at, lease));
        self.end_doubt(sent_at);
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

    /// Returns whether enough of a lease like this is left to renew it.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.confirmed().is_fresh(self.full, now)
    }

    /// Doubts it from now on, until a later request confirms it. A renewal does so at once if it `is_checked`.
    pub(super) fn doubt(&mut self, is_checked: bool, now: Time) {
        self.doubted_at = Some(now);
        self.is_checked |= is_checked;
    }

    pub(super) fn is_doubted(&self) -> bool {
        self.doubted_at.is_some()
    }

    /// Ends a doubt that is older than a request which the store confirmed.
    pub(super) fn end_doubt(&mut self, sent_at: Time) {
        self.doubted_at = self.doubted_at.filter(|doubted_at| *doubted_at >= sent_at);
        self.is_checked &= self.doubted_at.is_some();
    }

    /// Ends every doubt, because of a message that the store sent after all that was reported.
    pub(super) fn outdate_doubt(&mut self) {
        self.doubted_at = None;
    }

    /// Returns when the next renewal is due: later, if one is under way. A new fence is asked for at once.
    pub(super) fn renewal_due(&self, is_fence_due: bool, now: Time) -> Time {
        let mut due = renewal_due(self.confirmed_at, self.confirmed);
        if self.confirmed < self.full {
            due = due.min(self.confirmed_at + SOON);
        }
        if self.is_checked || is_fence_due {
            due = now;
        }
        let pause = renewal_attempt(self.confirmed);
        let sent = self.renewal_sent.map(|sent| sent + pause);
        due.max(sent.unwrap_or(due))
    }
}
