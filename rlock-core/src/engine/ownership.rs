//! Ownerships: the locks that a client owns on the store, or asks for, and the holds that use them one after another.
//!
//! ```text
//! Requested ──► Held ◄──► Passed        a hold ended, and the next local waiter begins one
//!                 │  ◄──► Retained      no hold; the next local caller takes the ownership
//!                 ├─────► Lost          no longer renewed; entries may remain
//!                 └─────► Ended         to be released, or released
//! ```
//!
//! Lock order: the watchdog's schedule or the client's map of queues, then an ownership, then its local queue.

mod description;
mod entries;
mod local_queue;
mod loss;
mod negotiation;
mod release;
mod release_queue;
mod renewal;
mod request;
mod succession;
#[cfg(test)]
mod tests;
mod tokens;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tracing::Span;

use self::{entries::EntryState, release::ReleaseState, renewal::Renewals, tokens::Tokens};
pub(crate) use self::{
    entries::{AfterLeave, EntryId},
    local_queue::{LocalQueues, Turn},
    loss::Revocation,
    release_queue::{Done, Queued, ReleaseQueue},
    renewal::Action,
    request::Requests,
};
use crate::{
    clock::ClientClock,
    error::{LockError, LostCause},
    key::Key,
    lease::{Time, valid_until},
    metrics,
    options::Site,
    owner::OwnerId,
    store::Claim,
    sync::{Mutex, MutexGuard, Notify, PoisonError, atomic::AtomicBool},
};

/// One owner of one key. Its guards, its callers, the watchdog and the release queue share it.
pub(crate) struct Ownership {
    clock: ClientClock,
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    state: Mutex<State>,
    /// Notified when the store reports something to the caller that asks.
    reported: Notify,
    /// Notified when an entry leaves, and of a loss.
    ended: Notify,
    /// Held while a change of the count is sent, so there is one at a time. Each sends the count that is wanted then,
    /// which corrects whatever an earlier change left behind.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Whether the ownership waits in the release queue.
    pub(crate) queued: AtomicBool,
}

#[derive(Default)]
struct State {
    phase: Phase,
    requests: Requests,
    tokens: Tokens,
    /// The fencing token of the present hold, or of the last one; 0 before the first.
    token: u64,
    /// Where the present or last hold was acquired, and when.
    site: Site,
    since: Time,
    renewals: Renewals,
    /// How many renewals are open: the store may still execute them.
    open_renewals: u8,
    rare: Option<Box<Rare>>,
    /// Counts the present hold, until it ends or is lost.
    held: metrics::Held,
    entries: SmallVec<[EntryState; 2]>,
    next_entry: u64,
    /// A lost ownership never comes back.
    lost: Option<LostCause>,
    /// Whether the client reports no loss, because the hold ended without one.
    is_reported: bool,
    /// The longest lease that an entry of the hold asked for. Acquires never shorten the TTL, and each renewal sets it.
    lease: Duration,
    /// The last lease that the store confirmed as the TTL, and when its request was sent. A shorter lease does not
    /// change the TTL, so it does not postpone the renewal.
    confirmed_lease: Duration,
    confirmed_at: Time,
    valid_until: Time,
    /// The end of the present hold by its `max_hold`.
    hold_until: Time,
    /// When a change by another client was reported, reports stopped, or a request for a passed ownership failed, until a
    /// later request confirms the ownership.
    doubted_at: Option<Time>,
    /// Until when the lock stays taken after the last entry left (`at_least`).
    keep_until: Option<Time>,
    /// The store's count may be higher, because a nested entry has just left.
    is_lowered: bool,
    /// How long the ownership is retained after the hold, and the end of the retention.
    retain: Duration,
    retained_until: Time,
    /// The turn for the key, while no caller has it.
    turn: Option<Turn>,
    /// Changed by the watchdog's schedule alone. Stored here to save the schedule a lookup by key.
    deadline: Option<Time>,
    release: ReleaseState,
}

/// What few ownerships have, apart from the others to keep them small.
#[derive(Default)]
struct Rare {
    /// The trace in which the present hold was acquired.
    trace_id: Option<String>,
    /// The entries at the time of the loss.
    lost_with: Vec<EntryId>,
    /// When another client asked for the lock, or took it.
    revoked_at: Option<Time>,
    /// The span of the present hold, if a subscriber wants it.
    span: Option<Arc<Span>>,
    /// The same, from a loss until its report.
    span_of_loss: Option<Arc<Span>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Requested,
    Held,
    Passed,
    Retained,
    Lost,
    Ended,
}

impl Ownership {
    pub(crate) fn new(clock: ClientClock, key: Key, owner: OwnerId, lease: Duration) -> Arc<Self> {
        Arc::new(Self {
            clock,
            key,
            owner,
            reported: Notify::new(),
            ended: Notify::new(),
            changing: tokio::sync::Mutex::new(()),
            queued: AtomicBool::new(false),
            state: Mutex::new(State {
                lease,
                confirmed_lease: lease,
                hold_until: Time::NEVER,
                ..State::default()
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim {
            key: self.key.clone(),
            owner: self.owner,
        }
    }

    /// Returns the last known fence, or 0.
    pub(crate) fn fence(&self) -> u64 {
        self.state().tokens.fence()
    }

    /// Returns the token of the present or last hold.
    pub(crate) fn token(&self) -> u64 {
        self.state().token
    }

    pub(crate) fn lease(&self) -> Duration {
        self.state().lease
    }

    pub(crate) fn valid_until(&self) -> Time {
        self.state().valid_until
    }

    /// Returns the end of the lease or of the `max_hold`.
    pub(crate) fn ends_at(&self) -> Time {
        let state = self.state();
        state.valid_until.min(state.hold_until)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state().phase == Phase::Held
    }

    /// Returns whether the hold has ended and the next one has not begun.
    pub(crate) fn is_passed(&self) -> bool {
        self.state().phase == Phase::Passed
    }

    #[cfg(test)]
    pub(crate) fn is_retained(&self) -> bool {
        self.state().phase == Phase::Retained
    }

    /// Returns whether the store has granted the lock, and this client has neither lost nor released it.
    pub(crate) fn is_owned(&self) -> bool {
        self.state().is_owned()
    }

    /// Returns the metrics of the present hold, or of the last one.
    pub(crate) fn metrics(&self) -> metrics::LockCounters {
        let site = self.state().site;
        metrics::lock(site)
    }

    /// Returns the key for an error or a log.
    pub(crate) fn shown(&self) -> &str {
        if self.key.is_hidden() {
            self.key.shown(self.state().site)
        } else {
            self.key.as_str()
        }
    }

    pub(crate) fn lost_error(&self, cause: LostCause) -> LockError {
        LockError::Lost {
            key: self.shown().to_owned(),
            cause,
        }
    }

    /// Sets the span of the present hold.
    pub(crate) fn set_span(&self, span: Arc<Span>) {
        self.state().rare.get_or_insert_default().span = Some(span);
    }

    /// Writes an event in the span of the present hold, or in the current span without one. Not under any lock.
    pub(crate) fn in_span(&self, write: impl FnOnce()) {
        let span = self.state().span();
        in_span(span, write);
    }

    /// Writes the report of a loss in the span of the hold that was lost. Not under any lock.
    pub(crate) fn in_span_of_loss(&self, write: impl FnOnce()) {
        let span = {
            let mut state = self.state();
            let of_loss = state
                .rare
                .as_mut()
                .and_then(|rare| rare.span_of_loss.take());
            of_loss.or_else(|| state.span())
        };
        in_span(span, write);
    }

    /// Keeps the lock taken at least until this time, even if the last entry leaves earlier.
    pub(crate) fn keep_until(&self, until: Time) {
        let mut state = self.state();
        state.keep_until = state.keep_until.max(Some(until));
    }

    /// Ends the ownership and passes the turn on, unless it has entries or is retained. The next local waiter may ask the
    /// store.
    pub(crate) fn finish(&self) {
        {
            let mut state = self.state();
            if !state.entries.is_empty() || state.phase == Phase::Retained {
                return;
            }
            state.phase = Phase::Ended;
        }
        self.pass_turn();
    }

    /// Passes the turn on without ending the ownership. The next local waiter may ask the store.
    pub(crate) fn pass_turn(&self) {
        let turn = {
            let mut state = self.state();
            state.turn.take().inspect(Turn::mark_released)
        };
        pass(turn);
    }
}

impl State {
    fn span(&self) -> Option<Arc<Span>> {
        self.rare.as_ref()?.span.clone()
    }

    fn is_owned(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Passed | Phase::Retained)
    }

    /// Returns the cause if the hold is lost, or has ended by the clock.
    fn broken(&self, now: Time) -> Option<LostCause> {
        self.lost.or_else(|| self.ended(now))
    }

    /// Returns the cause if the lease or the `max_hold` has ended. The earlier end counts.
    fn ended(&self, now: Time) -> Option<LostCause> {
        let (end, cause) = if self.hold_until <= self.valid_until {
            (self.hold_until, LostCause::MaxHold)
        } else {
            (self.valid_until, LostCause::Expired)
        };
        (now >= end).then_some(cause)
    }

    fn confirm(&mut self, sent_at: Time, lease: Duration) {
        let longest = self.longest_confirmed();
        let lease = lease.min(longest);
        // Both from one request, because replies may overtake each other: the one whose lease ends last.
        if lease >= self.lease.min(longest)
            && sent_at + lease >= self.confirmed_at + self.confirmed_lease
        {
            self.confirmed_lease = lease;
            self.confirmed_at = sent_at;
        }
        self.valid_until = self.valid_until.max(valid_until(sent_at, lease));
        self.end_doubt(sent_at);
    }

    /// Ends a doubt that is older than a request which the store confirmed.
    fn end_doubt(&mut self, sent_at: Time) {
        self.doubted_at = self.doubted_at.filter(|doubted_at| *doubted_at >= sent_at);
    }
}

fn in_span(span: Option<Arc<Span>>, write: impl FnOnce()) {
    match span {
        Some(span) => span.in_scope(write),
        None => write(),
    }
}

/// Passes the turn of an ownership that has ended. Not under any lock.
fn pass(turn: Option<Turn>) {
    if let Some(turn) = turn {
        turn.ended();
    }
}
