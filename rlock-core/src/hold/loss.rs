//! The end of a hold or of an entry: by a loss, which is reported once, or by leaving.

use std::{pin::pin, sync::Arc};

use super::{Entry, EntryId, Hold, Phase, State};
use crate::{
    error::LostCause,
    lease::Time,
    sync::atomic::{AtomicBool, Ordering},
};

/// The `max_hold` of one entry. Handles keep it after the entry has left.
pub(crate) struct MaxHold {
    /// The end of the `max_hold`.
    pub(crate) at: Time,
    noticed: AtomicBool,
}

impl MaxHold {
    pub(super) fn new(at: Time) -> Self {
        Self {
            at,
            noticed: AtomicBool::new(false),
        }
    }

    /// Marks the limit as noticed. Returns `true` at the first call.
    pub(crate) fn notice(&self) -> bool {
        !self.noticed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_noticed(&self) -> bool {
        self.noticed.load(Ordering::Acquire)
    }
}

impl Entry {
    pub(super) fn is_lost(&self) -> bool {
        self.max_hold
            .as_ref()
            .is_some_and(|limit| limit.is_noticed())
    }
}

impl Hold {
    /// Returns why an entry has left: `Released`, unless the hold was lost before.
    pub(crate) fn left(&self, id: EntryId) -> Option<LostCause> {
        let state = self.state();
        if state.entries.iter().any(|entry| entry.id == id) {
            return None;
        }
        let lost = state.lost.filter(|_| state.lost_with.contains(&id));
        Some(lost.unwrap_or(LostCause::Released))
    }

    /// Resolves when the entry has left.
    pub(crate) async fn until_left(&self, id: EntryId) -> LostCause {
        loop {
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if let Some(cause) = self.left(id) {
                return cause;
            }
            left.await;
        }
    }

    /// Returns the `max_hold` of a present entry.
    pub(crate) fn max_hold(&self, id: EntryId) -> Option<Arc<MaxHold>> {
        let state = self.state();
        let entry = state.entries.iter().find(|entry| entry.id == id)?;
        entry.max_hold.clone()
    }

    /// Marks the hold as lost and lets the next local waiter ask the store. Returns whether to
    /// report the loss. A hold that has ended cannot be lost, entries beyond their `max_hold`
    /// are already lost, and nobody relies on a retained ownership.
    pub(crate) fn lose(&self, cause: LostCause) -> bool {
        let (turn, news) = {
            let mut state = self.state();
            if !matches!(state.phase, Phase::Held | Phase::Retained) {
                return false;
            }
            state.phase = Phase::Lost;
            state.lost = Some(cause);
            state.lost_with = state.entries.iter().map(|entry| entry.id).collect();
            let news = !state.entries.iter().all(Entry::is_lost);
            (state.turn.take(), news)
        };
        let _ = self.lost.set(cause);
        drop(turn);
        news
    }

    /// Marks a hold as lost that its release found lost. Returns whether to report the loss.
    pub(crate) fn lose_at_release(&self, cause: LostCause) -> bool {
        let mut state = self.state();
        // Nobody relied on a retained one.
        let was_held = self.token() > 0 && state.retained_until == Time::NEVER;
        if !was_held || state.lost.is_some() || !state.entries.is_empty() {
            return false;
        }
        state.lost = Some(cause);
        !state.left_late
    }

    /// Marks a release as sent. Returns whether an earlier release may have been executed.
    pub(crate) fn begin_release(&self) -> bool {
        self.release_in_doubt.swap(true, Ordering::AcqRel)
    }

    /// Marks the release as confirmed, or as not executed.
    pub(crate) fn end_release(&self) {
        self.release_in_doubt.store(false, Ordering::Release);
    }

    /// The store confirmed the release: the lock is not the owner's any more, which is no loss. Owners that
    /// only waited may still ask again.
    pub(crate) fn confirm_release(&self) {
        if self.token() > 0 {
            self.given_back.store(true, Ordering::Release);
        }
    }

    pub(crate) fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::Acquire)
    }

    /// Marks each entry whose `max_hold` has ended, and returns how many were not marked before.
    pub(crate) fn notice_max_hold(&self, now: Time) -> usize {
        let state = self.state();
        let over = state
            .entries
            .iter()
            .filter_map(|entry| entry.max_hold.as_ref());
        over.filter(|limit| now >= limit.at && limit.notice())
            .count()
    }
}

impl State {
    /// Returns when the next `max_hold` ends.
    pub(super) fn next_max_hold(&self) -> Time {
        let entries = self.entries.iter().filter(|entry| !entry.is_lost());
        entries
            .map(|entry| entry.until)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Returns why the lease ended without renewal.
    pub(super) fn cause_of_expiry(&self, end: Time) -> LostCause {
        let mut renewed = self.entries.iter().filter(|entry| entry.renewed).peekable();
        if renewed.peek().is_some() && renewed.all(|entry| entry.until <= end) {
            LostCause::MaxHold
        } else {
            LostCause::Expired
        }
    }
}
