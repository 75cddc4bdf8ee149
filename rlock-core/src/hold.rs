//! One owner's hold of one lock: the state that its guards, its body, the watchdog and the release
//! queue share.

mod loss;
mod succession;
#[cfg(test)]
mod tests;
mod tokens;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::sync::SetOnce;

use crate::store::Mending;
use crate::{
    asking::Asking,
    clock::ClientClock,
    error::{LockError, LostCause},
    key::Key,
    lease::{Time, next_look, renewal_attempt, renewal_due, valid_until},
    owner::OwnerId,
    queue::{Turn, WaiterTerms},
    store::{Grant, Next, Onward, Renewal, Route},
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub(crate) use self::{
    loss::MaxHold,
    succession::{Passed, Succession},
    tokens::SharedTokens,
};

/// A lock that came for a shorter time than its lease is renewed after this long: whoever gives it
/// back sooner saves the request, whoever keeps it longer does not depend on the short time.
const SOON: Duration = Duration::from_millis(20);

pub(crate) struct Hold {
    clock: ClientClock,
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    token: AtomicU64,
    valid_until: AtomicU64,
    lost: SetOnce<LostCause>,
    /// Notified when an entry leaves.
    left: Notify,
    /// Whether a release was sent and its reply was not received.
    release_in_doubt: AtomicBool,
    /// The store confirmed that it was given back.
    given_back: AtomicBool,
    /// How far the store was asked for it, before it is held.
    pub(crate) asking: Asking,
    /// The tokens of the ownership, which its holds take one after another.
    pub(crate) tokens: SharedTokens,
    state: Mutex<State>,
    /// Changes of the count go to the store one at a time, each with the absolute count wanted
    /// then, so that whatever an earlier one left behind is set right by the next.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Whether the hold waits in the release queue.
    pub(crate) queued: AtomicBool,
    echo: AtomicBool,
}

struct State {
    phase: Phase,
    /// Kept beyond the phase: a hold that was lost never comes back.
    lost: Option<LostCause>,
    /// The entries at the time of the loss.
    lost_with: Vec<EntryId>,
    /// Whether the last entry left after its `max_hold`. That loss is already reported.
    left_late: bool,
    /// Room for an outer and an inner one.
    entries: SmallVec<[Entry; 2]>,
    next_entry: u64,
    /// The longest lease that an entry asked for: the TTL only grows.
    lease: Duration,
    /// The last lease that was confirmed to be the TTL, and when its request was sent. A shorter
    /// one leaves the TTL alone, so it does not put the renewal off.
    confirmed_lease: Duration,
    confirmed_at: Time,
    /// Until when the lock stays taken after the last entry left.
    keep_until: Option<Time>,
    /// The store's count may be higher, because a nested entry has just left.
    is_lowered: bool,
    /// How long the ownership is kept for the next caller of this process after the last entry left.
    retain: Duration,
    /// Until when it is kept.
    retained_until: Time,
    turn: Option<Turn>,
    /// When the latest renewal was sent, as long as none was answered since; in the future: when it is
    /// sent at the latest.
    renewing: Option<Time>,
    /// Changed by the watchdog's schedule only. Stored here to save the schedule a lookup by key.
    deadline: Option<Deadline>,
}

/// When the watchdog checks a hold next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Time,
    /// Another client changed the lock, so the hold is checked even if it is not renewed.
    pub(crate) suspect: bool,
}

/// What the watchdog does about a hold that is due.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Reports the hold as lost: its lease ended without a confirmed renewal.
    Lose(LostCause),
    /// Ends the retention.
    GiveBack,
    /// Renews the hold by this lease.
    Renew(Duration),
    /// Waits for the reply to the last renewal, because the server is busy with earlier ones.
    Wait,
    /// Asks the store whether the hold still exists. The hold is not renewed.
    Verify,
    /// Nothing: the hold is not renewed and its lease has not ended.
    LetRunOut,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Being asked for, see `asking`; nothing to renew.
    Asked,
    Held,
    /// The last entry left, and the ownership is kept for the next caller of this process.
    Retained,
    /// Its entries are still there, but it is not renewed any more.
    Lost,
    /// The last entry left, or never came; from here on the wanted count is zero.
    Ended,
}

/// One successful acquire within a hold.
struct Entry {
    id: EntryId,
    renewed: bool,
    /// Until when it is renewed.
    until: Time,
    max_hold: Option<Arc<MaxHold>>,
    in_body: bool,
}

/// An id that is never reused within a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u64);

/// What an entry asks of its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Whether the watchdog renews the lease while this entry lives.
    pub(crate) watchdog: bool,
    /// When the entry has been held for its `max_hold`.
    pub(crate) until: Option<Time>,
    /// How long the ownership is kept after the hold.
    pub(crate) retain: Duration,
}

/// What is left to do when an entry has left.
pub(crate) enum Left {
    /// The count in the store is to be lowered.
    Lower,
    /// The lock is to be given back.
    GiveBack,
    /// The next caller of this process has the lock.
    HandedOver(Passed),
    /// The ownership is kept for the next caller of this process.
    Retained,
}

impl Hold {
    pub(crate) fn new(clock: ClientClock, key: Key, owner: OwnerId, lease: Duration) -> Self {
        Self {
            asking: Asking::new(clock.clone()),
            clock,
            key,
            owner,
            token: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            lost: SetOnce::new(),
            left: Notify::new(),
            release_in_doubt: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
            tokens: SharedTokens::default(),
            state: Mutex::new(State {
                phase: Phase::Asked,
                lost: None,
                lost_with: Vec::new(),
                left_late: false,
                entries: SmallVec::new(),
                next_entry: 0,
                lease,
                confirmed_lease: lease,
                confirmed_at: Time::from_nanos(0),
                keep_until: None,
                is_lowered: false,
                retain: Duration::ZERO,
                retained_until: Time::NEVER,
                turn: None,
                renewing: None,
                deadline: None,
            }),
            changing: tokio::sync::Mutex::new(()),
            queued: AtomicBool::new(false),
            echo: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.state().entries.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn lease(&self) -> Duration {
        self.state().lease
    }

    pub(crate) fn valid_until(&self) -> Time {
        Time::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn lost(&self) -> Option<LostCause> {
        self.lost.get().copied()
    }

    /// Why the hold is not to be relied on any more, if so. Looks at the clock, so it knows before
    /// anybody was told.
    pub(crate) fn broken(&self) -> Option<LostCause> {
        self.lost()
            .or_else(|| (self.clock.now() >= self.valid_until()).then_some(LostCause::Expired))
    }

    pub(crate) async fn until_lost(&self) -> LostCause {
        *self.lost.wait().await
    }

    pub(crate) fn lost_error(&self, cause: LostCause) -> LockError {
        LockError::Lost {
            key: self.key.as_str().to_owned(),
            cause,
        }
    }

    /// Whether a nested acquire may enter this hold, or why not; `None`: it has ended, and the key
    /// is to be asked for afresh.
    pub(crate) fn enterable(&self) -> Option<Result<(), LostCause>> {
        self.enterable_in(self.state().phase)
    }

    fn enterable_in(&self, phase: Phase) -> Option<Result<(), LostCause>> {
        match phase {
            Phase::Ended | Phase::Asked | Phase::Retained => None,
            Phase::Held | Phase::Lost => Some(self.broken().map_or(Ok(()), Err)),
        }
    }

    /// The store granted the lock to whoever has the turn.
    pub(crate) fn begin(&self, terms: Terms, grant: Grant, turn: Turn) -> EntryId {
        let mut state = self.state();
        self.set_token(self.tokens.of_grant(grant.block));
        state.phase = Phase::Held;
        // It may have been asked for on behalf of another.
        state.lease = terms.lease;
        state.confirmed_lease = grant.ttl.min(terms.lease);
        state.confirmed_at = grant.since;
        let until = valid_until(grant.since, state.confirmed_lease).nanos();
        self.valid_until.store(until, Ordering::Release);
        state.turn = Some(turn);
        state.add(terms)
    }

    /// The store counted a further entry, as a request sent at `sent_at` asked.
    ///
    /// A hold that was lost meanwhile stays lost; one that ended meanwhile goes on with this entry. A lease
    /// that has ended is not brought back: others may have had the lock since.
    pub(crate) fn enter(&self, terms: Terms, sent_at: Time) -> Result<EntryId, LostCause> {
        let mut state = self.state();
        if let Some(cause) = state.lost.or_else(|| self.broken()) {
            return Err(cause);
        }
        state.phase = Phase::Held;
        self.confirm(&mut state, sent_at, terms.lease);
        Ok(state.add(terms))
    }

    /// Enters without asking the store, if that is possible as in [`Hold::enterable`].
    pub(crate) fn enter_locally(&self, terms: Terms) -> Option<Result<EntryId, LostCause>> {
        let mut state = self.state();
        self.enterable_in(state.phase)
            .map(|enterable| enterable.map(|()| state.add(terms)))
    }

    /// Keeps the lock taken until then, even if the last entry leaves before.
    pub(crate) fn keep_until(&self, until: Time) {
        let mut state = self.state();
        state.keep_until = state.keep_until.max(Some(until));
    }

    fn set_token(&self, token: u64) {
        self.token.store(token, Ordering::Release);
    }

    /// Marks that a body runs inside the entry, which stops by itself when the hold is lost.
    pub(crate) fn runs_body(&self, id: EntryId) {
        if let Some(entry) = self.state().entries.iter_mut().find(|entry| entry.id == id) {
            entry.in_body = true;
        }
    }

    pub(crate) fn has_body(&self) -> bool {
        self.state().entries.iter().any(|entry| entry.in_body)
    }

    /// Confirms the lease that the store granted to a renewal sent at `sent_at`. Returns when the hold
    /// is due next.
    ///
    /// Returns `None` if the lease has ended: a late reply does not revive it, because others may have
    /// held the lock since.
    pub(crate) fn renewed(&self, sent_at: Time, lease: Duration, now: Time) -> Option<Time> {
        let mut state = self.state();
        if now >= self.valid_until() {
            return None;
        }
        self.confirm(&mut state, sent_at, lease);
        Some(self.due_in(&state, now))
    }

    fn confirm(&self, state: &mut State, sent_at: Time, lease: Duration) {
        if lease >= state.lease {
            state.confirmed_lease = lease;
            state.confirmed_at = state.confirmed_at.max(sent_at);
        }
        let until = valid_until(sent_at, lease).nanos();
        self.valid_until.fetch_max(until, Ordering::AcqRel);
    }

    /// Removes an entry. If it was the last, the next caller of this process gets the lock, or the ownership is
    /// retained, as far as `succession` allows and without a request. Otherwise renewal stops. No handle on the entry
    /// is valid any more.
    pub(crate) fn leave(
        self: &Arc<Self>,
        id: EntryId,
        succession: Succession,
        counts_entries: bool,
    ) -> Left {
        let left = {
            let mut state = self.state();
            let now = self.clock.now();
            let left = state.entries.iter().find(|entry| entry.id == id);
            let late = left.is_some_and(Entry::is_lost);
            let over = left.is_none_or(|entry| late || now >= entry.until);
            state.entries.retain(|entry| entry.id != id);
            if !state.entries.is_empty() {
                state.is_lowered |= counts_entries;
                Left::Lower
            } else if over {
                state.phase = Phase::Ended;
                state.left_late = late;
                Left::GiveBack
            } else {
                self.end_in(&mut state, succession, now)
            }
        };
        self.left.notify_waiters();
        left
    }

    /// Removes all entries, whether or not their guards still exist.
    pub(crate) fn abandon(&self) {
        {
            let mut state = self.state();
            state.entries.clear();
            state.phase = Phase::Ended;
        }
        self.left.notify_waiters();
    }

    /// The count that the store should have now, and how long the lock stays taken at zero. `None`: the ownership has
    /// gone on, or is retained, and the store is told nothing of this hold.
    pub(crate) fn wanted(&self) -> Option<(u32, Duration)> {
        let state = self.state();
        if self.is_given_back() || state.phase == Phase::Retained {
            return None;
        }
        let keep = state
            .keep_until
            .map_or(Duration::ZERO, |until| until.since(self.clock.now()));
        let count = u32::try_from(state.entries.len()).unwrap_or(u32::MAX);
        Some((count, keep))
    }

    /// The store has this count.
    pub(crate) fn lowered(&self, count: u32) {
        let mut state = self.state();
        if u32::try_from(state.entries.len()) == Ok(count) {
            state.is_lowered = false;
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state().phase == Phase::Held
    }

    /// Whether this client owns the lock, for a hold or for the next one.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self.state().phase, Phase::Held | Phase::Retained)
    }

    pub(crate) fn is_retained(&self) -> bool {
        self.state().phase == Phase::Retained
    }

    /// Nothing of the hold is left at the store: the next waiter of this process may ask.
    pub(crate) fn finish(&self) {
        self.end_if(|_| true);
    }

    /// The same, but only for a hold without entries.
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
        drop(turn);
    }

    /// Who waits for the lock in this process, and is to have it when this hold is given back.
    pub(crate) fn next(&self, owner: impl FnOnce(Route) -> OwnerId, route: Route) -> Option<Next> {
        let state = self.state();
        let fresh = |WaiterTerms { lease, told_by, .. }| {
            let clock = self.clock.clone();
            Arc::new(Self::new(clock, self.key.clone(), owner(told_by), lease))
        };
        state.turn.as_ref()?.next(fresh, route)
    }

    /// What became of that one.
    pub(crate) fn went_on(&self, onward: Onward) {
        if let Some(turn) = &self.state().turn {
            turn.went_on(onward);
        }
    }

    /// Lets the next waiter of this process ask the store, whatever becomes of this hold.
    pub(crate) fn pass_turn(&self) {
        let turn = self.state().turn.take();
        drop(turn);
    }

    /// A renewal is about to be sent, and how long the lease is that the renewals count by; `None`:
    /// it is not wanted any more.
    pub(crate) fn begin_renewal(&self, now: Time) -> Option<(Renewal, Duration)> {
        let (lease, confirmed) = {
            let mut state = self.state();
            // It may have waited for its turn until after the end.
            let wanted = state.wants_renewal(now) && now < self.valid_until();
            state.renewing = wanted.then_some(now);
            state.renewing?;
            (state.lease, state.confirmed_lease)
        };
        self.about_to_change(Route::Home);
        let renewal = Renewal {
            key: self.key.clone(),
            owner: self.owner,
            lease,
        };
        Some((renewal, confirmed))
    }

    /// What servers that lost the hold are to have; `None`: it is not held any more.
    pub(crate) fn mending(&self, counted: bool) -> Option<Mending> {
        if self.broken().is_some() || !self.is_owned() {
            return None;
        }
        Some(Mending {
            key: self.key.clone(),
            owner: self.owner,
            lease: self.lease(),
            // A retained one has no entries.
            count: if counted { self.count().max(1) } else { 1 },
            token: self.tokens.fence(),
        })
    }

    /// A request that changes the lock is about to be sent by this way. If the one before went another
    /// way, the store tells of a foreign change, which is the echo of this one.
    pub(crate) fn about_to_change(&self, route: Route) {
        if self.asking.reads_by(route) {
            self.echo.store(true, Ordering::Release);
        }
    }

    /// A renewal was answered, or given up.
    pub(crate) fn end_renewal(&self) {
        self.state().renewing = None;
        if self.echo.load(Ordering::Acquire) {
            self.echo.store(false, Ordering::Release);
        }
    }

    /// Whether news of this lock are the echo of the first renewal; only once.
    pub(crate) fn is_echo(&self) -> bool {
        self.echo.swap(false, Ordering::AcqRel)
    }

    /// When the watchdog is to look at this hold next, if all goes well.
    pub(crate) fn due(&self) -> Time {
        self.due_in(&self.state(), self.clock.now())
    }

    fn due_in(&self, state: &State, now: Time) -> Time {
        let end = self.valid_until().min(state.next_max_hold());
        let end = end.min(state.end_of_retention());
        if state.wants_renewal(now) {
            let due = renewal_due(state.confirmed_at, state.confirmed_lease).min(end);
            if state.confirmed_lease < state.lease {
                due.min(now + SOON)
            } else {
                due
            }
        } else {
            end
        }
    }

    /// Returns when the watchdog checks this hold next, or `None` if it is not tracked.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        self.state().deadline
    }

    /// Sets when the watchdog checks this hold next, and returns the previous deadline.
    pub(crate) fn set_deadline(&self, next: Option<Deadline>) -> Option<Deadline> {
        std::mem::replace(&mut self.state().deadline, next)
    }

    /// Decides what to do about a hold that is due, and sets the deadline for the case that this fails.
    ///
    /// `is_queued` returns whether the reply to a renewal sent at that time is still to be expected,
    /// if the latest reply to any renewal is not older than the given duration.
    pub(crate) fn come_due(
        &self,
        now: Time,
        is_queued: impl FnOnce(Time, Duration) -> bool,
    ) -> (Action, Time) {
        let mut state = self.state();
        let end = self.valid_until();
        let suspect = state.deadline.is_some_and(|deadline| deadline.suspect);
        let (action, next) = if now >= state.end_of_retention() {
            (Action::GiveBack, end)
        } else if now >= end {
            (Action::Lose(state.cause_of_expiry(end)), end)
        } else if state.wants_renewal(now) {
            let pause = renewal_attempt(state.confirmed_lease);
            let waits = state
                .renewing
                .is_some_and(|sent| is_queued(sent, pause / 2));
            let action = if waits && !suspect {
                Action::Wait
            } else {
                state.renewing = Some(now + pause * 2);
                Action::Renew(state.lease)
            };
            (action, (now + pause).min(end))
        } else if suspect {
            (Action::Verify, end)
        } else {
            (Action::LetRunOut, end)
        };
        let next = next.min(state.end_of_retention());
        let at = next_look(next.min(state.next_max_hold()), now);
        state.deadline = Some(Deadline { at, suspect: false });
        (action, at)
    }
}

impl State {
    fn add(&mut self, terms: Terms) -> EntryId {
        self.lease = self.lease.max(terms.lease);
        self.retain = self.retain.max(terms.retain);
        let id = EntryId(self.next_entry);
        self.next_entry = self.next_entry.wrapping_add(1);
        self.entries.push(Entry {
            id,
            renewed: terms.watchdog,
            until: terms.until.unwrap_or(Time::NEVER),
            max_hold: terms.until.map(MaxHold::new).map(Arc::new),
            in_body: false,
        });
        id
    }

    fn wants_renewal(&self, now: Time) -> bool {
        let mut entries = self.entries.iter();
        match self.phase {
            Phase::Held => entries.any(|entry| entry.renewed && now < entry.until),
            Phase::Retained => true,
            Phase::Asked | Phase::Lost | Phase::Ended => false,
        }
    }

    fn end_of_retention(&self) -> Time {
        match self.phase {
            Phase::Retained => self.retained_until,
            Phase::Asked | Phase::Held | Phase::Lost | Phase::Ended => Time::NEVER,
        }
    }
}
