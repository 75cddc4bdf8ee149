//! One owner's hold of one lock: the state that its guards, its body, the watchdog and the release
//! queue share.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::SetOnce;

use crate::{
    error::{LockError, LostCause},
    key::Key,
    lease::{Time, renewal_due, valid_until},
    owner::OwnerId,
    queue::Turn,
};

pub(crate) struct Hold {
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    token: AtomicU64,
    valid_until: AtomicU64,
    lost: SetOnce<LostCause>,
    state: Mutex<State>,
    /// Changes of the count go to the store one at a time, each with the absolute count wanted
    /// then, so that whatever an earlier one left behind is set right by the next.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Whether the hold waits in the release queue.
    pub(crate) queued: AtomicBool,
}

struct State {
    phase: Phase,
    entries: Vec<Entry>,
    next_entry: u32,
    /// The longest lease that an entry asked for: the TTL only grows.
    lease: Duration,
    /// When the last request that was confirmed to have set the lease was sent.
    confirmed_at: Time,
    /// Until when the lock stays taken after the last entry left.
    keep_until: Option<Time>,
    turn: Option<Turn>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Being asked for; nothing to renew.
    Asked,
    Held,
    /// The last entry left, or never came; from here on the wanted count is zero.
    Ended,
}

/// One successful acquire within a hold.
struct Entry {
    id: EntryId,
    renewed: bool,
    until: Option<Time>,
    in_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

/// What an entry asks of its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Whether the watchdog renews the lease while this entry lives.
    pub(crate) watchdog: bool,
    /// When the entry has been held for its `max_hold`.
    pub(crate) until: Option<Time>,
    /// The lock stays taken until then, even if the entry leaves before.
    pub(crate) keep_until: Option<Time>,
}

/// What is left to do when an entry has left.
pub(crate) enum Left {
    /// The count in the store is to be lowered.
    Lower,
    /// The lock is to be given back.
    GiveBack,
}

impl Hold {
    pub(crate) fn new(key: Key, owner: OwnerId, lease: Duration, turn: Turn) -> Self {
        Self {
            key,
            owner,
            token: AtomicU64::new(0),
            valid_until: AtomicU64::new(0),
            lost: SetOnce::new(),
            state: Mutex::new(State {
                phase: Phase::Asked,
                entries: Vec::new(),
                next_entry: 0,
                lease,
                confirmed_at: Time::from_nanos(0),
                keep_until: None,
                turn: Some(turn),
            }),
            changing: tokio::sync::Mutex::new(()),
            queued: AtomicBool::new(false),
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
            .or_else(|| (Time::now() >= self.valid_until()).then_some(LostCause::Expired))
    }

    pub(crate) async fn until_lost(&self) -> LostCause {
        *self.lost.wait().await
    }

    pub(crate) fn lost_error(&self, cause: LostCause) -> LockError {
        LockError::Lost {
            key: self.key.to_string(),
            cause,
        }
    }

    /// Whether a nested acquire may enter this hold, or why not; `None`: it has ended, and the key
    /// is to be asked for afresh.
    pub(crate) fn enterable(&self) -> Option<Result<(), LockError>> {
        self.enterable_in(self.state().phase)
    }

    fn enterable_in(&self, phase: Phase) -> Option<Result<(), LockError>> {
        match phase {
            Phase::Ended | Phase::Asked => None,
            Phase::Held => Some(match self.broken() {
                Some(cause) => Err(self.lost_error(cause)),
                None => Ok(()),
            }),
        }
    }

    /// The store granted the lock, or a further entry, to a request sent at `sent_at`.
    pub(crate) fn enter(&self, terms: Terms, sent_at: Time) -> EntryId {
        let mut state = self.state();
        state.phase = Phase::Held;
        self.confirm(&mut state, sent_at, terms.lease);
        state.add(terms)
    }

    /// Enters without asking the store, if that is possible as in [`Hold::enterable`].
    pub(crate) fn enter_locally(&self, terms: Terms) -> Option<Result<EntryId, LockError>> {
        let mut state = self.state();
        self.enterable_in(state.phase)
            .map(|enterable| enterable.map(|()| state.add(terms)))
    }

    pub(crate) fn set_token(&self, token: u64) {
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

    /// The store confirmed a lease to a request sent at `sent_at`.
    pub(crate) fn renewed(&self, sent_at: Time, lease: Duration) {
        self.confirm(&mut self.state(), sent_at, lease);
    }

    fn confirm(&self, state: &mut State, sent_at: Time, lease: Duration) {
        state.confirmed_at = state.confirmed_at.max(sent_at);
        self.valid_until
            .fetch_max(valid_until(sent_at, lease).nanos(), Ordering::AcqRel);
    }

    /// An entry is gone. Renewal stops here if it was the last.
    pub(crate) fn leave(&self, id: EntryId) -> Left {
        let mut state = self.state();
        state.entries.retain(|entry| entry.id != id);
        if state.entries.is_empty() {
            state.phase = Phase::Ended;
            Left::GiveBack
        } else {
            Left::Lower
        }
    }

    /// All entries are gone, whoever still has a guard.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.entries.clear();
        state.phase = Phase::Ended;
    }

    /// The count that the store should have now, and how long the lock stays taken at zero.
    pub(crate) fn wanted(&self) -> (u32, Duration) {
        let state = self.state();
        let keep = state
            .keep_until
            .map_or(Duration::ZERO, |until| until.since(Time::now()));
        (u32::try_from(state.entries.len()).unwrap_or(u32::MAX), keep)
    }

    /// The hold is lost; the next waiter of this process may ask the store. Says whether that was
    /// news: a hold that has ended cannot be lost.
    pub(crate) fn lose(&self, cause: LostCause) -> bool {
        let turn = {
            let mut state = self.state();
            if state.phase != Phase::Held {
                return false;
            }
            state.turn.take()
        };
        drop(turn);
        self.lost.set(cause).is_ok()
    }

    /// Nothing of the hold is left at the store: the next waiter of this process may ask.
    pub(crate) fn finish(&self) {
        let turn = {
            let mut state = self.state();
            state.phase = Phase::Ended;
            state.turn.take()
        };
        drop(turn);
    }

    /// When the watchdog is to look at this hold next, if all goes well.
    pub(crate) fn due(&self) -> Time {
        let state = self.state();
        let end = self.valid_until();
        if state.wants_renewal() {
            renewal_due(state.confirmed_at, state.lease).min(end)
        } else {
            end
        }
    }

    pub(crate) fn wants_renewal(&self) -> bool {
        self.state().wants_renewal()
    }
}

impl State {
    fn add(&mut self, terms: Terms) -> EntryId {
        self.lease = self.lease.max(terms.lease);
        self.keep_until = self.keep_until.max(terms.keep_until);
        let id = EntryId(self.next_entry);
        self.next_entry = self.next_entry.wrapping_add(1);
        self.entries.push(Entry {
            id,
            renewed: terms.watchdog,
            until: terms.until,
            in_body: false,
        });
        id
    }

    fn wants_renewal(&self) -> bool {
        let now = Time::now();
        self.phase == Phase::Held
            && self
                .entries
                .iter()
                .any(|entry| entry.renewed && entry.until.is_none_or(|until| now < until))
    }
}
