//! Losses of an ownership or of its hold, with all entries.

use std::{mem, pin::pin, sync::Arc};

use super::{EntryId, Ownership, Phase, Rare, State, pass};
use crate::{error::LostCause, lease::Time, observe::HoldEnd, store::TOKENS};

/// What became of a lock that another client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// Its hold is lost.
    Lost,
    /// It had no hold, and is being released.
    Retained,
    /// Nothing was lost: its hold was lost before, or has not begun. In the second case, the call with its turn asks
    /// the store with another owner.
    Given,
    /// Its hold has another token.
    OtherHold,
    /// It is not held.
    NotHeld,
}

impl Ownership {
    /// Returns the cause if the ownership was marked as lost.
    pub(crate) fn lost(&self) -> Option<LostCause> {
        self.state().lost
    }

    /// Returns the cause if the ownership is lost or its lease has ended at `now`. A report of the loss may come later.
    pub(crate) fn broken(&self, now: Time) -> Option<LostCause> {
        self.state().broken(now)
    }

    /// Returns the cause if an entry has left: `Released`, unless the ownership was lost before.
    pub(crate) fn left(&self, id: EntryId) -> Option<LostCause> {
        let state = self.state();
        if state.entries.iter().any(|entry| entry.id == id) {
            return None;
        }
        let was_lost = |rare: &Rare| rare.lost_with.contains(&id);
        let lost = state
            .lost
            .filter(|_| state.rare.as_deref().is_some_and(was_lost));
        Some(lost.unwrap_or(LostCause::Released))
    }

    /// Resolves when the entry has left or the ownership is marked as lost.
    pub(crate) async fn until_ended(&self, id: EntryId) -> LostCause {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(cause) = self.left(id).or_else(|| self.lost()) {
                return cause;
            }
            ended.await;
        }
    }

    /// Gives the lock up for another client, if its present or last hold has this token.
    ///
    /// At once, the ownership is lost. Otherwise the hold is, and keeps the ownership until it has ended: its lease is
    /// renewed, and its release is sent.
    pub(crate) fn revoke(self: &Arc<Self>, token: Option<u64>, at_once: bool) -> Revocation {
        let (revocation, turn, held) = {
            let mut state = self.state();
            let is_requested = state.phase == Phase::Requested && at_once;
            if !state.is_owned() && !is_requested {
                return Revocation::NotHeld;
            }
            let fence = state.requests.grant().map(|grant| grant.fence);
            let revocation = match state.phase {
                // The reply with the tokens may be on its way, so the store compares the token.
                Phase::Requested if token.is_some() && fence.is_none() => Revocation::NotHeld,
                Phase::Requested if token.is_some_and(|token| fence != Some(token / TOKENS)) => {
                    return Revocation::OtherHold;
                }
                Phase::Requested => Revocation::Given,
                _ if token.is_some_and(|token| token != state.token) => {
                    return Revocation::OtherHold;
                }
                Phase::Retained => {
                    drop(state);
                    return if self.end_retention() {
                        Revocation::Retained
                    } else {
                        Revocation::NotHeld
                    };
                }
                Phase::Passed if !at_once => return Revocation::NotHeld,
                Phase::Passed => Revocation::Given,
                _ if state.lost.is_none() => Revocation::Lost,
                _ if at_once => Revocation::Given,
                _ => return Revocation::Given,
            };
            state.mark_lost(LostCause::Revoked);
            state.rare.get_or_insert_default().revoked_at = Some(self.now());
            let turn = if at_once {
                state.phase = Phase::Lost;
                state.turn.take()
            } else {
                None
            };
            (revocation, turn, mem::take(&mut state.held))
        };
        self.reported.notify_one();
        self.ended.notify_waiters();
        held.ends(HoldEnd::Lost, || self.now());
        pass(turn);
        revocation
    }

    /// Marks the ownership as lost, and lets the next local waiter ask the store. At the end of a `max_hold`, only the
    /// hold is lost: it keeps the ownership until it ends. Returns whether to report the loss: a call relied on the
    /// ownership, and no loss was reported before.
    pub(crate) fn lose(&self, cause: LostCause) -> bool {
        let (turn, is_new, held) = {
            let mut state = self.state();
            // A hold that was revoked keeps its ownership until it has ended.
            if !state.is_owned() || state.lost == Some(cause) {
                return false;
            }
            let is_hold = cause == LostCause::MaxHold && self.now() < state.valid_until;
            let turn = if is_hold {
                None
            } else {
                state.phase = Phase::Lost;
                state.turn.take()
            };
            let is_new = state.mark_lost(cause) && !state.entries.is_empty();
            if is_new {
                let span = state.span();
                if let Some(rare) = &mut state.rare {
                    rare.span_of_loss = span;
                }
            }
            (turn, is_new, mem::take(&mut state.held))
        };
        held.ends(HoldEnd::Lost, || self.now());
        self.ended.notify_waiters();
        pass(turn);
        is_new
    }

    /// Marks an ownership as lost because its release found it lost. Returns whether to report the loss.
    pub(crate) fn lose_at_release(&self, cause: LostCause) -> bool {
        let is_new = {
            let mut state = self.state();
            if state.token == 0 || state.lost.is_some() || !state.entries.is_empty() {
                return false;
            }
            state.lost = Some(cause);
            !state.is_reported
        };
        self.ended.notify_waiters();
        is_new
    }
}

impl State {
    /// Marks the ownership as lost, with its present entries. The first cause stays. Returns whether this is the first.
    fn mark_lost(&mut self, cause: LostCause) -> bool {
        if self.lost.is_some() {
            return false;
        }
        self.lost = Some(cause);
        let lost_with = self.entries.iter().map(|entry| entry.id).collect();
        self.rare.get_or_insert_default().lost_with = lost_with;
        true
    }
}
