//! What a reply or notification of the store changes in an ownership: its standing, its doubt and its tokens.

use std::time::Duration;

use super::Ownership;
use crate::{
    lease::Time,
    machine::{
        doubt::{Answer, Asked, Report},
        standing::Standing,
    },
    mode::LockMode,
    store::Grant,
};

impl Ownership {
    /// Applies a grant of the store. Returns `None` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(in crate::machine) fn granted(&mut self, grant: Grant) -> Option<Grant> {
        let is_again = self.tokens.are_before(grant.fence);
        self.standing.granted(grant);
        if is_again {
            self.doubt.reported(Report::Spent, grant.since);
        }
        (!is_again).then_some(grant)
    }

    /// Applies the message that the store handed the lock off, with a new fence. Returns whether a hold may begin with it.
    pub(in crate::machine) fn handed_off(
        &mut self,
        fence: u64,
        ttl: Duration,
        wanted: bool,
        now: Time,
    ) -> bool {
        let is_new = self.phase().is_pending() && self.standing.is_new(fence);
        if is_new {
            self.standing.handed_off(fence, ttl, wanted);
            self.doubt.reported(Report::HandedOff, now);
        }
        is_new
    }

    /// Applies the report that another client changed the lock.
    pub(in crate::machine) fn changed(&mut self, now: Time) {
        // The other holders of a shared lock change it, too, so only its renewals find a loss.
        if self.mode == LockMode::Exclusive {
            self.doubt.reported(Report::Changed, now);
        }
        self.standing.changed();
    }

    /// Applies the report that messages were missed.
    pub(in crate::machine) fn missed(&mut self, is_heard: bool, now: Time) {
        self.doubt.reported(Report::Missed { is_heard }, now);
        // The last renewal may have caused a report of a change, but not this one, so the next renewal is not put off.
        self.lease.renewal_sent = None;
        self.tokens.missed(now);
        self.standing.ask_by(now);
    }

    /// Makes the call with the turn ask again at this time at the latest.
    pub(in crate::machine) fn ask_by(&mut self, at: Time) {
        self.standing.ask_by(at);
    }

    /// Notes the answer to an acquire, or that none will come.
    pub(in crate::machine) fn answered(&mut self, asked: Asked, answer: Answer, now: Time) {
        self.doubt.answered(asked, answer, now);
    }

    /// Applies the reply that the owner may have the lock, although its request was refused.
    pub(in crate::machine) fn unclear(&mut self) {
        self.standing.unclear();
    }

    /// Applies the reply that the lock was not granted, at this fence, and then what it says about the place of the owner.
    pub(in crate::machine) fn not_granted(
        &mut self,
        fence: u64,
        place: impl FnOnce(&mut Standing),
    ) {
        self.standing.note_fence(fence);
        place(&mut self.standing);
    }
}
