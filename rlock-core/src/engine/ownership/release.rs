//! What the release of an ownership needs to know of it.

use std::{sync::Arc, time::Duration};

use super::{Ownership, Phase};
use crate::owner::OwnerId;

/// The progress of the release.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ReleaseState {
    #[default]
    Unsent,
    /// A release that was sent within the lease may have been executed. Its reply was not received.
    InDoubt,
    Confirmed,
}

impl Ownership {
    /// Returns the count that the store should have now, and how long the lock stays taken at zero. Returns `None` if
    /// there is nothing to change.
    pub(crate) fn wanted_count(&self) -> Option<(u32, Duration)> {
        let state = self.state();
        if state.release == ReleaseState::Confirmed
            || matches!(state.phase, Phase::Passed | Phase::Retained)
        {
            return None;
        }
        let keep = state
            .keep_until
            .map_or(Duration::ZERO, |until| until.since(self.now()));
        Some((state.count(), keep))
    }

    /// Notes that the store has this count.
    pub(crate) fn lowered(&self, count: u32) {
        let mut state = self.state();
        if state.count() == count {
            state.is_lowered = false;
        }
    }

    /// Marks a release as sent. Returns whether an earlier release may have ended the ownership while its lease was
    /// valid.
    pub(crate) fn begin_release(&self) -> bool {
        let now = self.now();
        let mut state = self.state();
        let before = state.release;
        if state.broken(now).is_none() {
            state.release = ReleaseState::InDoubt;
        }
        before == ReleaseState::InDoubt
    }

    /// Notes that no release was executed, or that the store no longer knows the owner.
    pub(crate) fn end_release(&self) {
        self.state().release = ReleaseState::Unsent;
    }

    /// Notes that the store confirmed the release. An owner that only waited may ask again.
    pub(crate) fn confirm_release(&self) {
        let mut state = self.state();
        state.release = match state.token {
            0 => ReleaseState::Unsent,
            _ => ReleaseState::Confirmed,
        };
    }

    /// Returns the ownership to ask for on behalf of the next local waiter, when this one is released, and that
    /// waiter's lease.
    pub(crate) fn next(
        &self,
        timeout: Duration,
        owner: impl FnOnce() -> OwnerId,
    ) -> Option<(Arc<Self>, Duration)> {
        let state = self.state();
        let fresh = |lease| Self::new(self.clock.clone(), self.key.clone(), owner(), lease);
        state.turn.as_ref()?.next(self, timeout, fresh)
    }

    /// Notes that the next local waiter was granted the lock.
    pub(crate) fn next_arrived(&self, wanted: bool) {
        if let Some(turn) = &self.state().turn {
            turn.arrived(wanted);
        }
    }
}
