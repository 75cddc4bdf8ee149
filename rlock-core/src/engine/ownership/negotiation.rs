//! The negotiation of an ownership with the store: acquires, their replies, and what the store reports meanwhile.

use std::time::Duration;

use super::{Ownership, Phase, request::Requests};
use crate::{lease::Time, store::Grant};

impl Ownership {
    /// Reads or changes the state of the requests, under the mutex: `access` must not call the ownership.
    pub(crate) fn requests<T>(&self, access: impl FnOnce(&mut Requests) -> T) -> T {
        access(&mut self.state().requests)
    }

    /// Applies a grant of the store. Returns `false` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(crate) fn granted(&self, grant: Grant) -> bool {
        let mut state = self.state();
        let is_new = !state.tokens.are_before(grant.fence);
        state.requests.granted(grant);
        state.end_doubt(grant.since);
        if !is_new {
            state.requests.retire();
        }
        is_new
    }

    /// Applies the message that the store handed the lock off to this owner. Calls `arrived` if it is new.
    pub(crate) fn handed_off(
        &self,
        fence: u64,
        ttl: Duration,
        wanted: bool,
        arrived: impl FnOnce(),
    ) {
        {
            let mut state = self.state();
            if state.phase != Phase::Requested || !state.requests.hand_off(fence, ttl, wanted) {
                return;
            }
            // Reports and notifications arrive in the server's order: what was reported before preceded the grant.
            state.doubted_at = None;
            // Under the mutex: the waiter may begin and end its hold at once.
            arrived();
        }
        self.reported.notify_one();
    }

    /// Makes the waiter ask again after this time at the latest.
    pub(crate) fn ask_after(&self, after: Duration) {
        self.state().requests.ask_by(self.now() + after);
        self.reported.notify_one();
    }

    /// Notes that another client changed the lock: its owner renewed it, or it is free.
    pub(crate) fn changed(&self) {
        let sooner = self.state().requests.changed();
        if sooner {
            self.reported.notify_one();
        }
    }

    /// Returns the grant, if the next hold may use it: it has to confirm an ownership in doubt.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let state = self.state();
        let grant = state.requests.grant();
        let is_usable =
            state.doubted_at.is_none() && state.lost.is_none() && !state.requests.is_retired();
        grant.filter(|_| is_usable)
    }

    /// Doubts the ownership until a later request confirms it: it may be another client's. A grant whose reply is on
    /// its way may also have ended.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        if state.is_owned() || state.phase == Phase::Requested {
            state.doubted_at = Some(self.now());
        }
    }

    /// Returns whether the next caller cannot use the ownership: it is lost, or may be rolled back.
    pub(crate) fn is_unusable(&self, now: Time) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Requested => state.requests.is_retired(),
            Phase::Passed => state.requests.is_retired() || now >= state.valid_until,
            Phase::Held | Phase::Retained | Phase::Lost | Phase::Ended => true,
        }
    }

    /// Returns when to ask the store again, while the owner waits.
    pub(super) fn ask_at(&self) -> Option<Time> {
        self.state().requests.ask_at()
    }

    /// Resolves when the lock was granted or the waiter has to ask again, at `deadline` at the latest. Resolves at once if
    /// the ownership was lost.
    pub(crate) async fn until_reported(&self, deadline: Time) {
        while self.lost().is_none() {
            let reported = self.reported.notified();
            let Some(ask_at) = self.state().requests.ask_at() else {
                return;
            };
            let left = ask_at.min(deadline).since(self.now());
            if left.is_zero() {
                return;
            }
            let _ = tokio::time::timeout(left, reported).await;
        }
    }

    /// Returns whether a renewal is due because the tokens run low.
    pub(crate) fn runs_low(&self) -> bool {
        let tokens = &mut self.state().tokens;
        tokens.run_low();
        tokens.is_fence_due()
    }
}
