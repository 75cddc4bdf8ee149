//! The end of a hold whose ownership continues: the next local waiter takes it, or it is retained.

use std::{sync::Arc, time::Duration};

use super::{AfterLeave, Ownership, Phase, State, Turn, release::ReleaseState};
use crate::{lease::Time, options::LockOptions, store::Grant, sync::atomic::Ordering};

/// How long an ownership waits for a new fence while local callers wait.
const FENCE_WAIT: Duration = Duration::from_secs(1);

impl Ownership {
    /// Ends a hold without entries: by a local hand-over, else by retention, else by a release. `may_continue`: whether
    /// the first two are possible.
    pub(super) fn end_hold(
        self: &Arc<Self>,
        state: &mut State,
        may_continue: bool,
        now: Time,
    ) -> AfterLeave {
        if may_continue && self.is_certain(state, now) {
            if let Some(turn) = Self::pass_to_waiter(state, now) {
                return AfterLeave::HandOver(turn);
            }
            if let Some(until) = Self::retention(state, now) {
                Self::retain(state, until);
                return AfterLeave::Retained;
            }
        }
        state.phase = Phase::Ended;
        AfterLeave::Release
    }

    /// Returns whether nothing about the ownership is in doubt, and its lease will last for a while.
    fn is_certain(&self, state: &State, now: Time) -> bool {
        let is_kept = state.keep_until.is_some_and(|until| until > now);
        // In this order: an ownership leaves the release queue when its change has begun.
        let is_queued = self.queued.load(Ordering::Acquire);
        let is_changing = is_queued || state.is_lowered || self.changing.try_lock().is_err();
        let is_in_doubt = state.requests.is_in_doubt() || state.release == ReleaseState::InDoubt;
        state.is_owned()
            && state.lost.is_none()
            && state.doubted_at.is_none()
            && state.grant().is_fresh(state.lease, now)
            && !is_kept
            && !is_changing
            && !is_in_doubt
    }

    /// Passes the ownership to the next local waiter, if that waiter may be served now. Returns its turn.
    fn pass_to_waiter(state: &mut State, now: Time) -> Option<Turn> {
        if !state.tokens.is_left() {
            return None;
        }
        let grant = state.grant();
        let fits = |next: &LockOptions| next.watchdog && grant.is_fresh(next.lease, now);
        if !state.turn.as_ref()?.serves_next(fits) {
            return None;
        }
        state.pass()
    }

    /// Returns the end of the retention, if there is one: of `retain`, or of the wait for further tokens.
    fn retention(state: &State, now: Time) -> Option<Time> {
        let turn = state.turn.as_ref()?;
        if turn.ends_retention() {
            return None;
        }
        if turn.has_waiters() {
            let waits = !state.tokens.is_left() && state.tokens.is_coming();
            return waits.then(|| now + FENCE_WAIT);
        }
        let may = state.tokens.is_coming() && !state.retain.is_zero();
        may.then(|| now + state.retain)
    }

    fn retain(state: &mut State, until: Time) {
        state.retained_until = until;
        state.phase = Phase::Retained;
        state.is_reported = true;
        if let Some(turn) = &state.turn {
            turn.set_retained(true);
        }
    }

    /// Passes a retained ownership to a local caller, and returns the turn. Returns `None` if its tokens have not
    /// arrived, or if it is released instead.
    pub(crate) fn resume(self: &Arc<Self>) -> Option<Turn> {
        let (turn, is_kept) = {
            let mut state = self.state();
            if state.phase != Phase::Retained {
                return None;
            }
            if !state.tokens.is_left() && state.tokens.is_coming() {
                state.turn.as_ref()?.set_retained(true);
                return None;
            }
            let is_left = state.tokens.is_left();
            (is_left.then(|| state.pass()).flatten(), is_left)
        };
        if !is_kept {
            self.end_retention();
        }
        turn
    }

    /// Ends the retention: the ownership is released in the background. Returns `false` if it is not retained.
    pub(crate) fn end_retention(self: &Arc<Self>) -> bool {
        let queues = {
            let mut state = self.state();
            if state.phase != Phase::Retained {
                return false;
            }
            state.phase = Phase::Ended;
            state.turn.as_ref().map(|turn| {
                turn.set_retained(false);
                Arc::clone(turn.queues())
            })
        };
        if let Some(queues) = queues {
            queues.releases.settle(Arc::clone(self));
        }
        true
    }

    /// Ends a retention that was only for callers who waited for further tokens, and have given up.
    pub(crate) fn end_wait_for_tokens(self: &Arc<Self>) {
        if self.state().retain.is_zero() {
            self.end_retention();
        }
    }

    /// Ends an ownership whose call is not polled, if `take` takes the turn back from that call. Returns whether the
    /// store has to be asked to release it, or `None` if the turn was not taken back.
    pub(super) fn take_back(&self, take: impl FnOnce() -> bool) -> Option<bool> {
        let mut state = self.state();
        // A hold or a release has the turn.
        if state.turn.is_some() || !take() {
            return None;
        }
        let is_unused = matches!(state.phase, Phase::Requested | Phase::Passed);
        if is_unused {
            state.phase = Phase::Ended;
        }
        Some(is_unused && state.requests.concerns_store())
    }

    /// Keeps the turn until the ownership, which was given up, is released.
    pub(super) fn keep_turn(&self, turn: Turn) {
        self.state().turn = Some(turn);
    }

    /// Returns the turn of an ownership that was given up, unless its release asks for the lock on behalf of a waiter.
    /// That request may be executed after the waiter's own requests.
    pub(super) fn leave_turn(&self) -> Option<Turn> {
        let mut state = self.state();
        let is_ended = state.phase == Phase::Ended;
        state.turn.take_if(|turn| is_ended && turn.is_for(self))
    }

    /// Returns whether the ownership is being released.
    pub(super) fn is_releasing(&self) -> bool {
        let state = self.state();
        state.phase == Phase::Ended && state.turn.is_some()
    }

    /// Returns whether a hold or a release has the turn.
    pub(super) fn has_turn(&self) -> bool {
        self.state().turn.is_some()
    }

    /// Returns whether the ownership is being released, or was.
    pub(crate) fn is_ended(&self) -> bool {
        self.state().phase == Phase::Ended
    }

    /// Returns the end of the lease of a lock that the next local caller may use at once.
    pub(super) fn reserved_until(&self) -> Option<Time> {
        let state = self.state();
        let grant = state.requests.grant()?;
        matches!(state.phase, Phase::Requested | Phase::Passed).then(|| grant.since + grant.ttl)
    }

    /// Ends an ownership that no caller wants, if `may` holds under the mutex. Returns whether the store has to be
    /// asked to release it.
    pub(super) fn give_up(&self, may: impl FnOnce() -> bool) -> bool {
        let mut state = self.state();
        if state.phase == Phase::Ended || !state.entries.is_empty() || !may() {
            return false;
        }
        state.phase = Phase::Ended;
        state.requests.concerns_store()
    }
}

impl State {
    /// Returns the ownership as it was confirmed last.
    fn grant(&self) -> Grant {
        Grant {
            fence: 0,
            since: self.confirmed_at,
            ttl: self.confirmed_lease,
            wanted: false,
        }
    }

    /// Ends the hold. The caller that gets the turn continues with the ownership.
    fn pass(&mut self) -> Option<Turn> {
        let grant = self.grant();
        self.requests.passed_on(grant);
        self.phase = Phase::Passed;
        self.is_reported = true;
        self.turn.take()
    }
}
