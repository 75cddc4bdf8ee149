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

mod local_queue;
mod loss;
mod releases;
mod renewal;
mod request;
mod succession;
#[cfg(test)]
mod tests;
mod tokens;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

pub(crate) use self::{
    local_queue::{LocalQueues, Turn, WaiterTerms},
    loss::MaxHold,
    releases::{Done, Releases, Work},
    renewal::{Action, Deadline},
    succession::Succession,
};
use self::{request::Request, tokens::Tokens};
use crate::{
    clock::ClientClock,
    error::{LockError, LostCause},
    key::Key,
    lease::{Time, valid_until},
    options::LockOptions,
    owner::OwnerId,
    store::{Claim, Grant, Mending, QueuePlace, TokenBlock, Via},
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

struct State {
    phase: Phase,
    request: Request,
    tokens: Tokens,
    /// The fencing token of the present hold, or of the last one; 0 before the first.
    token: u64,
    entries: SmallVec<[EntryState; 2]>,
    next_entry: u64,
    /// A lost ownership never comes back.
    lost: Option<LostCause>,
    /// The entries at the time of the loss.
    lost_with: Vec<EntryId>,
    /// Whether no loss is to be reported: the hold ended without one, or the end of its `max_hold` was reported.
    is_reported: bool,
    /// The longest lease that an entry asked for: the TTL only grows.
    lease: Duration,
    /// The last lease that the store confirmed as the TTL, and when its request was sent. A shorter lease does not
    /// change the TTL, so it does not postpone the renewal.
    confirmed_lease: Duration,
    confirmed_at: Time,
    valid_until: Time,
    /// When a change by another client was reported, or reports stopped, until a later request confirms the ownership.
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
    /// When the latest renewal was sent, until its reply. A time in the future: the latest time at which it is sent.
    renewing: Option<Time>,
    /// Changed by the watchdog's schedule alone. Stored here to save the schedule a lookup by key.
    deadline: Option<Deadline>,
    release: ReleaseState,
    /// Whether the store will report a change of this client as one of another client.
    echo: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Requested,
    Held,
    Passed,
    Retained,
    Lost,
    Ended,
}

/// The progress of the release.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReleaseState {
    Unsent,
    /// A release may have been executed. Its reply was not received.
    InDoubt,
    Confirmed,
}

/// One acquire within a hold: the outermost, or a nested one.
struct EntryState {
    id: EntryId,
    renewed: bool,
    /// The end of its renewals.
    until: Time,
    max_hold: Option<Arc<MaxHold>>,
    in_body: bool,
}

/// An id that is never reused within an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u64);

/// The options of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Whether the watchdog renews the lease while this entry lives.
    pub(crate) watchdog: bool,
    /// The end of its `max_hold`.
    pub(crate) until: Option<Time>,
    /// How long the ownership is retained after the hold.
    pub(crate) retain: Duration,
}

impl Terms {
    /// Returns the terms of an entry that begins now.
    pub(crate) fn new(now: Time, options: &LockOptions) -> Self {
        Self {
            lease: options.lease,
            watchdog: options.watchdog,
            until: options.max_hold.map(|most| now + most),
            retain: options.retain,
        }
    }
}

/// The step that follows when an entry has left.
pub(crate) enum AfterLeave {
    /// Lower the store's count.
    Lower,
    /// Release the lock.
    Release,
    /// Pass the turn to the next local waiter, outside of all locks.
    HandOver(Turn),
    /// Nothing: the ownership is retained. `is_awaited`: local callers or other clients wait for it already.
    Retained { is_awaited: bool },
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
                phase: Phase::Requested,
                request: Request::default(),
                tokens: Tokens::default(),
                token: 0,
                entries: SmallVec::new(),
                next_entry: 0,
                lost: None,
                doubted_at: None,
                lost_with: Vec::new(),
                is_reported: false,
                lease,
                confirmed_lease: lease,
                confirmed_at: Time::from_nanos(0),
                valid_until: Time::from_nanos(0),
                keep_until: None,
                is_lowered: false,
                retain: Duration::ZERO,
                retained_until: Time::NEVER,
                turn: None,
                renewing: None,
                deadline: None,
                release: ReleaseState::Unsent,
                echo: false,
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

    /// Returns the last known value of the store's fence.
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

    /// Returns the number of entries of the hold with this token.
    pub(crate) fn count(&self, token: u64) -> u32 {
        let state = self.state();
        if state.token == token {
            state.count()
        } else {
            0
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state().phase == Phase::Held
    }

    /// Returns whether the store is asked for the ownership, and no hold has begun.
    pub(crate) fn is_requested(&self) -> bool {
        self.state().phase == Phase::Requested
    }

    /// Returns whether the hold has ended and the next one has not begun.
    pub(crate) fn is_passed(&self) -> bool {
        self.state().phase == Phase::Passed
    }

    pub(crate) fn is_retained(&self) -> bool {
        self.state().phase == Phase::Retained
    }

    /// Returns whether the store has granted the lock, and this client has neither lost nor released it.
    pub(crate) fn is_owned(&self) -> bool {
        self.state().is_owned()
    }

    pub(crate) fn lost_error(&self, cause: LostCause) -> LockError {
        LockError::Lost {
            key: self.key.as_str().to_owned(),
            cause,
        }
    }

    /// Begins a hold with a grant of the store or of the hold before. Returns its entry and its token. Returns `None`
    /// if the ownership was lost meanwhile, or has no token left.
    pub(crate) fn begin(&self, terms: Terms, grant: Grant, turn: Turn) -> Option<(EntryId, u64)> {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Requested | Phase::Passed) {
            return None;
        }
        state.tokens.granted(grant.block);
        let Some(token) = state.tokens.take() else {
            state.request.spoil();
            return None;
        };
        state.token = token;
        state.phase = Phase::Held;
        // Another call may have asked for the ownership, with other options.
        state.lease = terms.lease;
        state.confirmed_lease = grant.ttl.min(terms.lease);
        state.confirmed_at = grant.since;
        state.dispel(grant.since);
        state.valid_until = valid_until(grant.since, state.confirmed_lease);
        state.keep_until = None;
        state.is_reported = false;
        state.retain = Duration::ZERO;
        state.retained_until = Time::NEVER;
        state.turn = Some(turn);
        Some((state.add(terms), token))
    }

    /// Returns the number of entries, and `Ok` if a nested acquire may enter the hold with this token, or the cause if it
    /// may not. Returns `None` if that hold has ended: the nested acquire starts anew.
    pub(crate) fn enterable(&self, token: u64) -> Option<(u32, Result<(), LostCause>)> {
        let state = self.state();
        let enterable = state.enterable(token, self.now())?;
        Some((state.count(), enterable))
    }

    /// Adds an entry that the store counted for a request sent at `sent_at`.
    ///
    /// A hold that has ended meanwhile continues with this entry. A lease that has ended is not revived, because
    /// another owner may have had the lock since.
    pub(crate) fn enter(&self, terms: Terms, sent_at: Time) -> Result<(EntryId, u64), LostCause> {
        let mut state = self.state();
        if let Some(cause) = state.broken(self.now()) {
            return Err(cause);
        }
        state.phase = Phase::Held;
        state.confirm(sent_at, terms.lease);
        Ok((state.add(terms), state.token))
    }

    /// Adds an entry without a request, where [`enterable`](Self::enterable) allows it.
    pub(crate) fn enter_locally(
        &self,
        token: u64,
        terms: Terms,
    ) -> Option<Result<(EntryId, u64), LostCause>> {
        let mut state = self.state();
        let enterable = state.enterable(token, self.now())?;
        Some(enterable.map(|()| (state.add(terms), state.token)))
    }

    /// Keeps the lock taken at least until this time, even if the last entry leaves earlier.
    pub(crate) fn keep_until(&self, until: Time) {
        let mut state = self.state();
        state.keep_until = state.keep_until.max(Some(until));
    }

    /// Marks that a body runs inside the entry. The body stops when the ownership is lost.
    pub(crate) fn runs_body(&self, id: EntryId) {
        if let Some(entry) = self.state().entries.iter_mut().find(|entry| entry.id == id) {
            entry.in_body = true;
        }
    }

    pub(crate) fn has_body(&self) -> bool {
        self.state().entries.iter().any(|entry| entry.in_body)
    }

    /// Removes an entry. After the last entry, the next local waiter gets the ownership, or it is retained, if
    /// `succession` allows that. Otherwise renewal stops, and the caller releases it.
    pub(crate) fn leave(
        self: &Arc<Self>,
        id: EntryId,
        succession: Succession,
        counts_entries: bool,
        now: Time,
    ) -> AfterLeave {
        let left = {
            let mut state = self.state();
            let left = state.entries.iter().find(|entry| entry.id == id);
            let late = left.is_some_and(EntryState::is_lost);
            let over = left.is_none_or(|entry| late || now >= entry.until);
            state.entries.retain(|entry| entry.id != id);
            if !state.entries.is_empty() {
                state.is_lowered |= counts_entries;
                AfterLeave::Lower
            } else if over {
                state.phase = Phase::Ended;
                state.is_reported = late;
                AfterLeave::Release
            } else {
                self.end_hold(&mut state, succession, now)
            }
        };
        self.ended.notify_waiters();
        left
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

    /// Returns the ownership as servers that lost it should have it. Returns `None` if it is no longer owned.
    pub(crate) fn mending(&self, counts_entries: bool) -> Option<Mending> {
        let state = self.state();
        if state.broken(self.now()).is_some() || !state.is_owned() {
            return None;
        }
        Some(Mending {
            key: self.key.clone(),
            owner: self.owner,
            lease: state.lease,
            // A retained ownership has no entries.
            count: if counts_entries {
                state.count().max(1)
            } else {
                1
            },
            token: state.tokens.fence(),
        })
    }

    /// Ends the ownership and passes the turn on. The next local waiter may ask the store.
    pub(crate) fn finish(&self) {
        self.end_if(|_| true);
    }

    /// Ends the ownership in the same way, unless it has entries.
    pub(crate) fn finish_if_empty(&self) {
        self.end_if(|state| state.entries.is_empty());
    }

    fn end_if(&self, ends: impl FnOnce(&State) -> bool) {
        let turn = {
            let mut state = self.state();
            if !ends(&state) || state.phase == Phase::Retained {
                return;
            }
            state.phase = Phase::Ended;
            state.turn.take()
        };
        pass(turn);
    }

    /// Passes the turn on without ending the ownership. The next local waiter may ask the store.
    pub(crate) fn pass_turn(&self) {
        let turn = self.state().turn.take();
        pass(turn);
    }

    /// Returns the ownership that the release of this one asks for on behalf of the next local waiter, and that
    /// waiter's lease.
    pub(crate) fn next(&self, owner: impl FnOnce() -> OwnerId) -> Option<(Arc<Self>, Duration)> {
        let state = self.state();
        let fresh = |terms: WaiterTerms| {
            Self::new(self.clock.clone(), self.key.clone(), owner(), terms.lease)
        };
        state.turn.as_ref()?.next(fresh)
    }

    /// Notes that the release of this ownership granted the lock to the next local waiter.
    pub(crate) fn next_arrived(&self, wanted: bool) {
        if let Some(turn) = &self.state().turn {
            turn.arrived(wanted);
        }
    }
}

/// The negotiation with the store.
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
    pub(crate) fn certain(&self) {
        self.state().request.certain();
    }

    /// Sets whether the request in doubt may take its grant back.
    pub(crate) fn set_taken_back(&self, may_be: bool) {
        self.state().request.set_taken_back(may_be);
    }

    /// Marks the grant as taken back, perhaps after the next grant.
    pub(crate) fn spoil(&self) {
        self.state().request.spoil();
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.state().request.is_spoilt()
    }

    /// Applies a grant of the store. Returns `false` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(crate) fn granted(&self, grant: Grant) -> bool {
        let mut state = self.state();
        let is_new = !state.tokens.are_before(grant.block);
        state.request.granted(grant);
        if !is_new {
            state.request.spoil();
        }
        is_new
    }

    /// Applies the message that the store handed the lock off to this owner.
    pub(crate) fn handed_off(&self, block: TokenBlock, ttl: Duration, wanted: bool) {
        let is_news = {
            let mut state = self.state();
            state.phase == Phase::Requested && state.request.hand_off(block, ttl, wanted)
        };
        if is_news {
            self.reported.notify_one();
        }
    }

    /// Applies the reply that another owner has the lock. `queued` is the place in the store's wait queue.
    pub(crate) fn refused(&self, since: Time, ttl: Option<Duration>, queued: Option<QueuePlace>) {
        let (mut state, now) = (self.state(), self.now());
        match queued {
            Some(place) => state.request.queued(since, ttl, place, now),
            None => state.request.refused(since, ttl, now),
        }
    }

    /// Applies the reply that neither granted the lock nor queued the owner.
    pub(crate) fn not_granted(&self, since: Time) {
        self.state().request.not_granted(since);
    }

    /// Notes the store's fence at the time of a refusal.
    pub(crate) fn is_past(&self, fence: u64) {
        self.state().request.is_past(fence);
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

    /// Returns whether the owner is in the store's wait queue, as far as is known.
    pub(crate) fn is_queued(&self) -> bool {
        self.state().request.is_queued()
    }

    /// Returns whether the next caller cannot use the ownership: it is lost, or may be taken back.
    pub(crate) fn is_useless(&self, now: Time) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Requested => state.request.is_spoilt(),
            Phase::Passed => state.request.is_spoilt() || now >= state.valid_until,
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

    /// Returns the size of an extension of the tokens, if one is due.
    pub(crate) fn begin_extension(&self, callers_wait: bool) -> Option<u64> {
        self.state().tokens.begin_extension(callers_wait)
    }

    /// Adds the tokens of an extension.
    pub(crate) fn extended(&self, block: TokenBlock) {
        self.state().tokens.extended(block);
    }

    /// Marks a release as sent. Returns whether an earlier release may have been executed.
    pub(crate) fn begin_release(&self) -> bool {
        let before = std::mem::replace(&mut self.state().release, ReleaseState::InDoubt);
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
}

impl State {
    fn is_owned(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Passed | Phase::Retained)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Returns the cause if the ownership is lost or its lease has ended.
    fn broken(&self, now: Time) -> Option<LostCause> {
        let expired = || (now >= self.valid_until).then_some(LostCause::Expired);
        self.lost.or_else(expired)
    }

    fn enterable(&self, token: u64, now: Time) -> Option<Result<(), LostCause>> {
        // The ownership may have been handed on to another hold.
        let is_it = matches!(self.phase, Phase::Held | Phase::Lost) && self.token == token;
        is_it.then(|| self.broken(now).map_or(Ok(()), Err))
    }

    fn confirm(&mut self, sent_at: Time, lease: Duration) {
        if lease >= self.lease {
            self.confirmed_lease = lease;
            self.confirmed_at = self.confirmed_at.max(sent_at);
        }
        self.valid_until = self.valid_until.max(valid_until(sent_at, lease));
        self.dispel(sent_at);
    }

    /// Ends a doubt that is older than a request which the store confirmed.
    fn dispel(&mut self, sent_at: Time) {
        self.doubted_at = self.doubted_at.filter(|doubted_at| *doubted_at >= sent_at);
    }

    fn add(&mut self, terms: Terms) -> EntryId {
        self.lease = self.lease.max(terms.lease);
        self.retain = self.retain.max(terms.retain);
        let id = EntryId(self.next_entry);
        self.next_entry = self.next_entry.wrapping_add(1);
        self.entries.push(EntryState {
            id,
            renewed: terms.watchdog,
            until: terms.until.unwrap_or(Time::NEVER),
            max_hold: terms.until.map(MaxHold::new).map(Arc::new),
            in_body: false,
        });
        id
    }
}

/// Passes the turn of an ownership that has ended. Not under any lock.
fn pass(turn: Option<Turn>) {
    if let Some(turn) = turn {
        turn.ended();
    }
}
