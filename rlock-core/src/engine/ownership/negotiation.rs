//! The negotiation of an ownership with the store: acquires, their replies, and what the store reports meanwhile.

use std::time::Duration;

use super::{Ownership, Phase};
use crate::{
    lease::Time,
    store::{Grant, QueuePlace, TokenBlock, Via},
};

impl Ownership {
    /// Notes that a request is about to be sent. Returns whether an earlier request is still in doubt.
    pub(crate) fn begin_request(&self, route: Via) -> bool {
        self.state().request.begin(route, self.now())
    }

    /// Notes that a request which changes the lock is about to be sent. If the request before took another route,
    /// the store reports this change as a foreign one: its echo.
    pub(crate) fn about_to_change(&self, route: Via) {
        let mut state = self.state();
        state.echo |= state.request.reads_by(route);
    }

    /// Returns whether a reported change is the echo of this client's request. Each echo counts once.
    pub(crate) fn is_echo(&self) -> bool {
        std::mem::take(&mut self.state().echo)
    }

    /// Returns the route of a request in doubt. The next request takes the same route, so that it does not overtake
    /// that request.
    pub(crate) fn route_in_doubt(&self) -> Option<Via> {
        self.state().request.route_in_doubt()
    }

    /// Notes that the replies to all requests were received.
    pub(crate) fn all_replied(&self) {
        self.state().request.all_replied();
    }

    /// Sets whether the request in doubt may roll its grant back.
    pub(crate) fn set_may_roll_back(&self, may_be: bool) {
        self.state().request.set_may_roll_back(may_be);
    }

    /// Retires the owner: its grant may be rolled back, perhaps after the next grant.
    pub(crate) fn retire(&self) {
        self.state().request.retire();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.state().request.is_retired()
    }

    /// Applies a grant of the store. Returns `false` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(crate) fn granted(&self, grant: Grant) -> bool {
        let mut state = self.state();
        let is_new = !state.tokens.are_before(grant.block);
        state.request.granted(grant);
        if !is_new {
            state.request.retire();
        }
        is_new
    }

    /// Applies the message that the store handed the lock off to this owner. Calls `arrived` if it is new.
    pub(crate) fn handed_off(
        &self,
        block: TokenBlock,
        ttl: Duration,
        wanted: bool,
        arrived: impl FnOnce(),
    ) {
        {
            let mut state = self.state();
            if state.phase != Phase::Requested || !state.request.hand_off(block, ttl, wanted) {
                return;
            }
            // Under the mutex: the waiter may begin and end its hold at once.
            arrived();
        }
        self.reported.notify_one();
    }

    /// Applies the reply that another owner has the lock. `queued` is the place in the store's wait queue.
    pub(crate) fn refused(&self, since: Time, ttl: Option<Duration>, queued: Option<QueuePlace>) {
        let (mut state, now) = (self.state(), self.now());
        state.request.refused(since, ttl, queued, now);
    }

    /// Applies the reply that neither granted the lock nor queued the owner.
    pub(crate) fn not_granted(&self, since: Time) {
        self.state().request.not_granted(since);
    }

    /// Notes the store's fence at the time of a refusal.
    pub(crate) fn note_fence(&self, fence: u64) {
        self.state().request.note_fence(fence);
    }

    /// Makes the waiter ask again after this time at the latest.
    pub(crate) fn ask_after(&self, after: Duration) {
        self.state().request.ask_by(self.now() + after);
        self.reported.notify_one();
    }

    /// Notes that another client changed the lock: its owner renewed it, or it is free.
    pub(crate) fn changed(&self) {
        let sooner = self.state().request.changed();
        if sooner {
            self.reported.notify_one();
        }
    }

    /// Returns the grant, if there is one. The next hold has to confirm an ownership in doubt.
    pub(crate) fn grant(&self) -> Option<Grant> {
        let state = self.state();
        state.request.grant().filter(|_| state.doubted_at.is_none())
    }

    /// Doubts the ownership until a later request confirms it: it may be another client's.
    pub(crate) fn doubt(&self, now: Time) {
        let mut state = self.state();
        if state.is_owned() {
            state.doubted_at = Some(now);
        }
    }

    /// Returns whether another owner has the lock, as far as is known.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state().request.ask_at().is_some()
    }

    /// Returns whether the owner is in the store's wait queue, as far as is known.
    pub(crate) fn is_queued(&self) -> bool {
        self.state().request.is_queued()
    }

    /// Returns whether the next caller cannot use the ownership: it is lost, or may be rolled back.
    pub(crate) fn is_unusable(&self, now: Time) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Requested => state.request.is_retired(),
            Phase::Passed => state.request.is_retired() || now >= state.valid_until,
            Phase::Held | Phase::Retained | Phase::Lost | Phase::Ended => true,
        }
    }

    /// Resolves when the lock was granted or the waiter has to ask again, at `deadline` at the latest. Resolves at once if
    /// the ownership was lost.
    pub(crate) async fn until_reported(&self, deadline: Time) {
        while self.lost().is_none() {
            let reported = self.reported.notified();
            let Some(ask_at) = self.state().request.ask_at() else {
                return;
            };
            let left = ask_at.min(deadline).since(self.now());
            if left.is_zero() {
                return;
            }
            let _ = tokio::time::timeout(left, reported).await;
        }
    }

    /// Returns the size of an extension of the tokens, if one is due. `holds` limits the holds that may follow.
    pub(crate) fn begin_extension(&self, callers_wait: bool, holds: u64) -> Option<u64> {
        self.state().tokens.begin_extension(callers_wait, holds)
    }

    /// Adds the tokens of an extension.
    pub(crate) fn extended(&self, block: TokenBlock) {
        self.state().tokens.extended(block);
    }
}
