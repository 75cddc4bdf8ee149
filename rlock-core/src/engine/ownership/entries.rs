//! The entries of a hold: how it begins, how nested acquires enter it, and how they leave.

use std::{mem, sync::Arc, time::Duration};

use tracing::Span;

use super::{Ownership, Phase, State, Turn};
use crate::{
    error::LostCause,
    lease::{Time, valid_until},
    metrics,
    observe::{EndedHold, HoldEnd},
    options::LockOptions,
    store::Grant,
};

/// One acquire within a hold: the outermost, or a nested one.
pub(super) struct EntryState {
    pub(super) id: EntryId,
    pub(super) renewed: bool,
    in_body: bool,
}

/// An id that is never reused within an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u64);

/// The step that follows when an entry has left.
pub(crate) enum AfterLeave {
    /// Lower the store's count.
    Lower,
    /// Release the lock.
    Release,
    /// Pass the turn to the next local waiter, outside of all locks.
    HandOver(Turn),
    /// Nothing: the ownership is retained.
    Retained,
}

impl Ownership {
    /// Begins a hold with a grant of the store or of the hold before. Returns its entry and its token. Returns `None`
    /// if the ownership was lost meanwhile, or has no token left.
    pub(crate) fn begin(
        &self,
        options: &LockOptions,
        grant: Grant,
        turn: Turn,
        now: Time,
    ) -> Option<(EntryId, u64)> {
        let metrics = metrics::lock(options.site);
        let mut state = self.state();
        if !matches!(state.phase, Phase::Requested | Phase::Passed) || !turn.is_current() {
            return None;
        }
        state.tokens.granted(grant);
        let Some(token) = state.tokens.take() else {
            state.requests.retire();
            return None;
        };
        state.token = token;
        state.site = options.site;
        state.since = now;
        state.held = metrics::Held::begin(metrics, now);
        state.renewals.count = 0;
        state.rare = None;
        let before = mem::replace(&mut state.phase, Phase::Held);
        state.confirmed_lease = match before {
            // A renewal of an earlier hold, which may be executed late, sets the TTL to its own lease.
            Phase::Passed => grant.ttl.min(state.confirmed_lease),
            _ => grant.ttl,
        }
        .min(options.lease)
        .min(state.longest_confirmed());
        // Another call may have asked for the ownership, with other options.
        state.lease = options.lease;
        state.confirmed_at = grant.since;
        state.end_doubt(grant.since);
        state.valid_until = valid_until(grant.since, state.confirmed_lease);
        state.keep_until = None;
        state.is_reported = false;
        state.retain = Duration::ZERO;
        state.limit(options, now);
        state.turn = Some(turn);
        Some((state.add(options), token))
    }

    /// Returns the number of entries, and `Ok` if a nested acquire may enter the hold with this token, or the cause if it
    /// may not. Returns `None` if that hold has ended: the nested acquire starts anew.
    pub(crate) fn enterable(&self, token: u64) -> Option<(u32, Result<(), LostCause>)> {
        let state = self.state();
        let enterable = state.enterable(token, self.now())?;
        Some((state.count(), enterable))
    }

    /// Adds an entry that the store counted for a request sent at `sent_at`, after these renewals; see
    /// [`settled_renewals`](Self::settled_renewals).
    ///
    /// A hold that has ended meanwhile continues with this entry. A lease that has ended is not revived, because
    /// another owner may have had the lock since.
    pub(crate) fn enter(
        &self,
        options: &LockOptions,
        sent_at: Time,
        renewals: Option<u32>,
        now: Time,
    ) -> Result<(EntryId, u64), LostCause> {
        let metrics = metrics::lock(options.site);
        let mut state = self.state();
        if let Some(cause) = state.broken(self.now()) {
            return Err(cause);
        }
        let continues = state.entries.is_empty();
        if continues {
            state.held = metrics::Held::begin(metrics, now);
            state.limit(options, now);
        }
        state.phase = Phase::Held;
        // A renewal that is executed after this request sets the TTL to its own lease. The next renewal then confirms the
        // lease of this entry.
        if renewals.is_some() && renewals == state.settled_renewals() {
            state.confirm(sent_at, options.lease);
        }
        state.end_doubt(sent_at);
        let entered = (state.add(options), state.token);
        drop(state);
        if continues {
            metrics.held();
        }
        Ok(entered)
    }

    /// Adds an entry without a request, where [`enterable`](Self::enterable) allows it.
    pub(crate) fn enter_locally(
        &self,
        token: u64,
        options: &LockOptions,
    ) -> Option<Result<(EntryId, u64), LostCause>> {
        let mut state = self.state();
        let enterable = state.enterable(token, self.now())?;
        Some(enterable.map(|()| (state.add(options), state.token)))
    }

    /// Adds an entry with the renewal of a present one, for work that a loss does not stop.
    /// Returns `None` if that entry has left.
    pub(crate) fn keep(&self, id: EntryId) -> Option<EntryId> {
        let mut state = self.state();
        let entry = state.entries.iter().find(|entry| entry.id == id)?;
        let renewed = entry.renewed;
        Some(state.add_entry(renewed, true))
    }

    /// Marks that a body runs inside the entry, and returns its span. The body stops when the ownership is lost.
    pub(crate) fn runs_body(&self, id: EntryId) -> Option<Arc<Span>> {
        let mut state = self.state();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.id == id) {
            entry.in_body = true;
        }
        state.span()
    }

    pub(crate) fn has_body(&self) -> bool {
        self.state().entries.iter().any(|entry| entry.in_body)
    }

    /// Removes an entry. After the last entry, the next local waiter gets the ownership, or it is retained, if it
    /// `may_continue`. Otherwise renewal stops, and the caller releases it.
    pub(crate) fn leave(
        self: &Arc<Self>,
        id: EntryId,
        end: HoldEnd,
        may_continue: bool,
        counts_entries: bool,
        now: Time,
    ) -> (AfterLeave, Option<EndedHold>) {
        let (left, held, end, ended) = {
            let mut state = self.state();
            let is_present = state.entries.iter().any(|entry| entry.id == id);
            let end = match state.lost {
                None if is_present => end,
                _ => HoldEnd::Lost,
            };
            state.entries.retain(|entry| entry.id != id);
            if !state.entries.is_empty() {
                state.is_lowered |= counts_entries;
                (AfterLeave::Lower, metrics::Held::default(), end, None)
            } else if !is_present {
                state.phase = Phase::Ended;
                let ended = state.end_span(end);
                (AfterLeave::Release, mem::take(&mut state.held), end, ended)
            } else {
                let left = self.end_hold(&mut state, may_continue, now);
                state.hold_until = Time::NEVER;
                (left, mem::take(&mut state.held), end, state.end_span(end))
            }
        };
        held.ends(end, || now);
        self.ended.notify_waiters();
        (left, ended)
    }

    /// Removes all entries, whether or not their guards still exist.
    pub(crate) fn abandon(&self) {
        {
            let mut state = self.state();
            state.entries.clear();
            state.phase = Phase::Ended;
        }
        self.ended.notify_waiters();
    }

    /// Returns the way in which the ownership came to its present hold.
    pub(crate) fn way(&self) -> metrics::Way {
        self.state().requests.way
    }

    /// Returns the number of entries of the hold with this token.
    pub(crate) fn count(&self, token: u64) -> u32 {
        let state = self.state();
        if state.token == token {
            state.count()
        } else {
            0
        }
    }
}

impl State {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    fn end_span(&mut self, end: HoldEnd) -> Option<EndedHold> {
        let renewals = self.renewals.count;
        let span = self.rare.as_mut()?.span.take()?;
        Some(EndedHold {
            span,
            end,
            renewals,
        })
    }

    fn enterable(&self, token: u64, now: Time) -> Option<Result<(), LostCause>> {
        // The ownership may have been handed on to another hold.
        let is_it = matches!(self.phase, Phase::Held | Phase::Lost) && self.token == token;
        is_it.then(|| self.broken(now).map_or(Ok(()), Err))
    }

    /// Limits the hold that begins by its `max_hold`.
    fn limit(&mut self, options: &LockOptions, now: Time) {
        self.hold_until = options.max_hold.map_or(Time::NEVER, |most| now + most);
    }

    fn add(&mut self, options: &LockOptions) -> EntryId {
        self.lease = self.lease.max(options.lease);
        self.retain = self.retain.max(options.retain);
        self.add_entry(options.watchdog, false)
    }

    fn add_entry(&mut self, renewed: bool, in_body: bool) -> EntryId {
        let id = EntryId(self.next_entry);
        self.next_entry = self.next_entry.wrapping_add(1);
        self.entries.push(EntryState {
            id,
            renewed,
            in_body,
        });
        id
    }
}
