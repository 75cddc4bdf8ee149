//! The end of a hold whose ownership goes on: by the next hold of this process at once, or kept for it.

use std::{sync::Arc, time::Duration};

use super::{Hold, Left, Phase, State};
use crate::{
    lease::{Time, valid_until},
    queue::{Turn, WaiterTerms},
    store::{Grant, TokenBlock},
    sync::atomic::Ordering,
};

/// How long an ownership waits for an extension of its tokens while callers of this process wait.
const EXTENSION: Duration = Duration::from_secs(1);

/// What may follow a hold without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Nothing: the store is told.
    None,
    /// A hold of a caller that waits.
    Waiters,
    /// The same, or a retained ownership.
    Retained,
}

/// A turn that goes on with the ownership. Pass it on where no lock is held.
pub(crate) struct Passed(Turn);

impl Passed {
    pub(crate) fn pass_on(self) {
        drop(self.0);
    }
}

impl Hold {
    /// Ends the hold without entries, in the way that needs the fewest requests.
    pub(super) fn end_in(
        self: &Arc<Self>,
        state: &mut State,
        succession: Succession,
        now: Time,
    ) -> Left {
        if succession != Succession::None && self.is_certain(state, now) {
            if let Some(turn) = self.successor(state, now) {
                return Left::HandedOver(Passed(turn));
            }
            if let Some(retained_until) = self.retention(state, succession, now) {
                state.retained_until = retained_until;
                state.phase = Phase::Retained;
                if let Some(turn) = &state.turn {
                    turn.retain(self);
                }
                return Left::Retained;
            }
        }
        state.phase = Phase::Ended;
        Left::GiveBack
    }

    /// Whether the store has the ownership as this client knows it, and for a while.
    fn is_certain(&self, state: &State, now: Time) -> bool {
        let is_kept = state.keep_until.is_some_and(|until| until > now);
        // In this order: the queue is left when the change has begun.
        let is_queued = self.queued.load(Ordering::Acquire);
        let is_changing = is_queued || state.is_lowered || self.changing.try_lock().is_err();
        let is_in_doubt =
            self.asking.route_in_doubt().is_some() || self.release_in_doubt.load(Ordering::Acquire);
        state.lost.is_none()
            && !self.tokens.are_void()
            && matches!(state.phase, Phase::Held | Phase::Retained)
            && Self::grant_of(state).is_fresh(state.lease, now)
            && !is_kept
            && !is_changing
            && !is_in_doubt
    }

    /// The ownership as it was confirmed last.
    fn grant_of(state: &State) -> Grant {
        Grant {
            block: TokenBlock::EMPTY,
            since: state.confirmed_at,
            ttl: state.confirmed_lease,
            wanted: false,
        }
    }

    /// Begins the hold of the next waiter of this process; answers the turn to pass on.
    fn successor(self: &Arc<Self>, state: &mut State, now: Time) -> Option<Turn> {
        if !self.tokens.is_left() {
            return None;
        }
        let grant = Self::grant_of(state);
        let fits = |terms: &WaiterTerms| terms.watchdog && grant.is_fresh(terms.lease, now);
        let turn = state.turn.as_ref()?;
        if !turn.hand_over(fits, |lease| self.succeeded_by(grant, lease)) {
            return None;
        }
        self.gone_on(state)
    }

    /// The next hold of the ownership.
    fn succeeded_by(&self, grant: Grant, lease: Duration) -> Arc<Self> {
        let next = Self {
            tokens: self.tokens.clone(),
            ..Self::new(self.clock.clone(), self.key.clone(), self.owner, lease)
        };
        next.asking
            .handed_over(grant, &self.asking, self.tokens.fence());
        Arc::new(next)
    }

    /// Whether the ownership that it was to go on with is over: by the clock, by what the store said, or because the
    /// store granted another one. Its owner is not used again.
    pub(crate) fn is_over(&self) -> bool {
        let grant = self.asking.grant().filter(|_| self.tokens.fence() > 0);
        grant.is_some_and(|grant| {
            self.tokens.are_void()
                || self.tokens.are_before(grant.block)
                || self.clock.now() >= valid_until(grant.since, grant.ttl)
        })
    }

    /// Ends the hold, whose ownership has gone on: the store is told nothing of it any more.
    fn gone_on(&self, state: &mut State) -> Option<Turn> {
        state.phase = Phase::Ended;
        self.given_back.store(true, Ordering::Release);
        state.turn.take()
    }

    /// Until when the ownership is kept, if it is: for its `retain`, or for tokens that are on their way.
    fn retention(&self, state: &State, succession: Succession, now: Time) -> Option<Time> {
        let turn = state.turn.as_ref()?;
        if turn.is_wanted() {
            return None;
        }
        if turn.has_waiters() {
            let waits = !self.tokens.is_left() && self.tokens.is_coming();
            return waits.then(|| now + EXTENSION);
        }
        let may = succession == Succession::Retained && self.tokens.is_coming();
        (may && !state.retain.is_zero()).then(|| now + state.retain)
    }

    /// Takes the retained ownership for a caller of this process, and returns its turn. `None` if its tokens are still
    /// to come, or if it goes back to the store.
    pub(crate) fn resume(self: &Arc<Self>) -> Option<Turn> {
        let turn = self.try_resume();
        if turn.is_none() && (self.tokens.is_left() || !self.tokens.is_coming()) {
            self.end_retention();
        }
        turn
    }

    /// The same. Without tokens it stays retained.
    fn try_resume(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        if state.phase != Phase::Retained {
            return None;
        }
        let turn = state.turn.as_ref()?;
        if !self.tokens.is_left() {
            turn.retain(self);
            return None;
        }
        // Servers that lost it may be told of it at this moment.
        let _changing = self.changing.try_lock().ok()?;
        let grant = Self::grant_of(&state);
        turn.resume(self.succeeded_by(grant, state.lease));
        self.gone_on(&mut state)
    }

    /// Ends the retention: the lock is given back in the background.
    pub(crate) fn end_retention(self: &Arc<Self>) {
        let queues = {
            let mut state = self.state();
            if state.phase != Phase::Retained {
                return;
            }
            state.phase = Phase::Ended;
            let turn = state.turn.as_ref();
            turn.and_then(|turn| turn.end_retention(self))
        };
        if let Some(queues) = queues {
            queues.releases.push(Arc::clone(self));
        }
    }

    /// Other clients wait for the lock.
    pub(crate) fn note_wanted(&self) {
        let queues = self.state().turn.as_ref().and_then(Turn::queues);
        if let Some(queues) = queues {
            queues.wanted(&self.key);
        }
    }
}
