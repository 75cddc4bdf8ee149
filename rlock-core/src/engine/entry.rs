//! The handle of one entry: what it knows of its hold, and its release when it ends or is dropped.

use std::{
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    pin::pin,
    sync::Arc,
    thread,
    time::Duration,
};

use futures_util::future::select_all;
use rlock_proto::{
    lease::Time,
    lost::LostCause,
    machine::{self, HoldEnd, Input, Ownership, Refusal, Step},
    owner::OwnerId,
};
use tracing::Span;

use crate::{
    engine::{
        call::CallGuard,
        core::Core,
        driver::ClientHandle,
        hold_record::{HoldRecord, Passenger},
    },
    error::LockError,
    token::Token,
};

#[derive(Clone)]
pub(crate) struct EntryHandle {
    pub(crate) client: ClientHandle,
    pub(crate) hold: Arc<HoldRecord>,
    number: u32,
}

// No foreign code runs while the machine changes.
impl UnwindSafe for EntryHandle {}
impl RefUnwindSafe for EntryHandle {}

impl EntryHandle {
    pub(crate) fn new(client: &ClientHandle, hold: Arc<HoldRecord>, number: u32) -> Self {
        Self {
            client: client.clone(),
            hold,
            number,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        self.client.core()
    }

    pub(super) fn inner(&self) -> machine::Entry {
        machine::Entry {
            slot: self.hold.slot,
            key: self.hold.key.clone(),
            owner: self.hold.owner,
            number: self.number,
        }
    }

    /// Returns the hold as a call inside it sees it.
    pub(crate) fn inside(&self) -> machine::Inside {
        machine::Inside {
            slot: self.hold.slot,
            owner: self.hold.owner,
            token: self.hold.token,
            entry: self.number,
        }
    }

    /// Reads the ownership, unless it is over.
    fn read<T>(&self, read: impl FnOnce(&Ownership, Time) -> T) -> Option<T> {
        let (hold, shell) = (&self.hold, &self.core().shell);
        shell.read(|machine, now| Some(read(machine.own_at(hold.slot, hold.owner)?, now)))
    }

    pub(crate) fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// Returns the fencing token of the hold.
    pub(crate) fn token(&self) -> Token {
        Token::of_hold(self.hold.token)
    }

    /// Returns the key for an error or a log.
    pub(crate) fn shown(&self) -> &str {
        self.hold.key.shown()
    }

    pub(crate) fn owner(&self) -> OwnerId {
        let mode = self.read(|own, _| own.mode).unwrap_or(self.hold.mode);
        self.core().owner_id(self.hold.owner, mode)
    }

    /// Returns whether both are entries of the same hold.
    pub(crate) fn is_in_hold_of(&self, other: &Self) -> bool {
        self.owner() == other.owner() && self.token() == other.token()
    }

    /// Returns whether the hold has not ended.
    pub(crate) fn is_live(&self) -> bool {
        self.read(|own, _| own.is_live(self.hold.token)) == Some(true)
    }

    /// Returns the number of entries of the hold.
    pub(crate) fn depth(&self) -> u32 {
        let depth = |own: &Ownership, _| {
            let is_this = own.token() == Some(self.hold.token);
            is_this.then(|| own.entries())
        };
        self.read(depth).flatten().unwrap_or_default()
    }

    /// Returns whether other clients wait for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        let (key, shell) = (&self.hold.key, &self.core().shell);
        shell.read(|machine, _| machine.slot(key).is_some_and(machine::Slot::others_wait))
    }

    /// Marks that a body runs inside, which stops when the lock is lost.
    pub(super) fn runs_body(&self) {
        self.core().shell.on(Input::Run(self.inner()));
    }

    /// Returns the span of the hold.
    pub(crate) fn span(&self) -> Option<Arc<Span>> {
        self.hold.span().cloned()
    }

    /// Lets the hold carry a passenger, or returns the one that it carries already.
    pub(crate) fn carry<P: Passenger>(&self, passenger: impl FnOnce() -> P) -> Arc<P> {
        let carried = self.hold.carry(passenger);
        // If the hold ended before it had the passenger, its end did not reach it.
        if self.ended().is_some() {
            carried.ends();
        }
        carried
    }

    /// Announces the hold to all clients of the store.
    pub(crate) fn announce(&self) {
        self.core().shell.announcements.announce(&self.hold);
    }

    /// Returns the cause if the entry is no longer valid. Locks the client's mutex only once the
    /// known end of the lease has passed.
    ///
    /// Does not check whether the entry has left; see [`EntryHandle::left`].
    pub(crate) fn broken(&self) -> Option<LostCause> {
        if let Some(cause) = self.hold.cause() {
            return Some(cause);
        }
        if self.hold.lasts(self.core().clock.now()) {
            return None;
        }
        self.valid_until().err()
    }

    /// Resolves when the hold is lost. An entry of a running body does not leave before.
    pub(crate) async fn until_lost(&self) -> LostCause {
        self.hold.until_lost().await
    }

    /// Returns until when the hold is valid. Records that under the client's mutex, so that no older value replaces it later.
    pub(super) fn valid_until(&self) -> Result<Time, LostCause> {
        let valid = self.read(|own, now| {
            let valid = own.valid_until(now);
            valid.inspect(|end| self.hold.lasts_until(*end))
        });
        let valid = valid.unwrap_or(Err(LostCause::Released));
        valid.map_err(|cause| self.hold.lost(self.number).unwrap_or(cause))
    }

    /// Returns the cause if the entry has left: `Released`, unless the lock was lost before.
    pub(crate) fn left(&self) -> Option<LostCause> {
        let is_present = self.read(|own, _| own.has(self.number)) == Some(true);
        (!is_present).then(|| self.hold.lost(self.number).unwrap_or(LostCause::Released))
    }

    /// Returns the cause if the entry has left or is not valid now.
    pub(crate) fn ended(&self) -> Option<LostCause> {
        self.left().or_else(|| self.valid_until().err())
    }

    /// Adds an entry to the same hold. Sends no request.
    pub(crate) fn keep(&self) -> Result<EntryGuard, LockError> {
        match self.core().shell.on(Input::Keep(self.inner())) {
            Some(Step::Entered(kept)) => {
                let (hold, number) = (Arc::clone(&self.hold), kept[0].entry.number);
                let kept = Self::new(&self.client, hold, number);
                Ok(EntryGuard::of(kept, None))
            }
            Some(Step::Refused(Refusal::Lost(_, cause))) => {
                let cause = self.hold.lost(self.number).unwrap_or(cause);
                Err(self.lost_error(cause))
            }
            step => unreachable!("a kept entry does not lead to {step:?}"),
        }
    }

    /// Returns an error if a downgrade of the hold would be refused.
    pub(crate) fn check_downgrade(&self) -> Result<(), LockError> {
        if let Some(cause) = self.ended() {
            return Err(self.lost_error(cause));
        }
        let entry = self.inner();
        let others = self.core().shell.read(|machine, _| machine.others(&entry));
        match others {
            0 => Ok(()),
            others => Err(self.nested_error("downgrade", others)),
        }
    }

    /// Downgrades the hold.
    pub(crate) fn downgrade(&self) -> Result<(), LockError> {
        match self.core().shell.on(Input::Downgrade(self.inner())) {
            Some(Step::Downgraded) => Ok(()),
            Some(Step::Refused(Refusal::Lost(_, cause))) => Err(self.lost_error(cause)),
            Some(Step::Refused(Refusal::Nested(others))) => {
                Err(self.nested_error("downgrade", others))
            }
            step => unreachable!("a downgrade does not lead to {step:?}"),
        }
    }

    fn nested_error(&self, option: &'static str, others: u32) -> LockError {
        let entries = if others == 1 { "entry" } else { "entries" };
        let value = format!("with {others} other {entries}");
        let reason = format!(
            "a body or nested calls rely on the exclusive lock: {option} it when they have ended, \
             with the guard of `acquire`"
        );
        LockError::invalid_option(option, value, reason).of_lock(self.shown())
    }

    /// Ends the hold, whose only entry this is, and leaves the lock to its lease. Returns the token that releases the lock.
    pub(crate) fn detach(&self) -> Result<Token, LockError> {
        match self.core().shell.on(Input::Detach(self.inner())) {
            Some(Step::Detached { token }) => {
                self.hold.notify_entry_end();
                Ok(Token::of_hold(token))
            }
            Some(Step::Refused(Refusal::Lost(_, cause))) => {
                let cause = self.hold.lost(self.number).unwrap_or(cause);
                Err(self.lost_error(cause))
            }
            Some(Step::Refused(Refusal::Nested(others))) => {
                Err(self.nested_error("detach", others))
            }
            Some(Step::Refused(Refusal::Upgrade(_, mode))) => {
                let reason = "the store does not know which of its holders has which token: release it, or detach \
                              an exclusive lock";
                let error = LockError::invalid_option("detach", format!("with {mode}"), reason);
                Err(error.of_lock(self.shown()))
            }
            step => unreachable!("a detached entry does not lead to {step:?}"),
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let until = self.valid_until();
        until.map_or(Duration::ZERO, |until| until.since(self.core().clock.now()))
    }

    /// Resolves when the entry has left or the lock is lost.
    pub(crate) async fn lost(&self) -> LostCause {
        let ended = || self.hold.lost(self.number).or_else(|| self.left());
        self.hold.until_entry_ends(ended).await
    }

    /// Asks the code inside to release the lock.
    pub(crate) fn request_release(&self) {
        self.hold.request_release();
    }

    /// Resolves when the hold is asked to release its lock, or its client drains.
    pub(crate) async fn release_requested(&self) {
        tokio::select! {
            () = self.hold.until_requested() => {}
            () = self.core().until_draining() => {}
        }
    }

    /// Resolves when the hold will soon be lost, unless the entry leaves.
    pub(crate) async fn expiring(&self) {
        let core = self.core();
        let expiring = async {
            loop {
                // Listens before it reads, so that it misses no shorter lease.
                let mut changed = pin!(self.hold.changes());
                changed.as_mut().enable();
                // Read again after each sleep, because a renewal may have come, or another lease.
                let after = self.read(Ownership::expires_soon_in).unwrap_or_default();
                if after.is_zero() {
                    return;
                }
                let end = core.clock.now() + after;
                tokio::select! {
                    () = core.clock.sleep_towards(end) => {}
                    () = changed => {}
                }
            }
        };
        core.in_runtime(expiring).await;
    }

    pub(crate) fn lost_error(&self, cause: LostCause) -> LockError {
        LockError::Lost {
            key: self.shown().to_owned(),
            cause,
        }
    }
}

/// Resolves to the first of these entries that has left or is lost, and to the cause.
pub(crate) async fn first_lost<'a>(
    entries: impl Iterator<Item = &'a EntryHandle>,
) -> (&'a EntryHandle, LostCause) {
    first(entries, EntryHandle::lost).await
}

/// Resolves to the first of these entries for which this resolves, and to its output.
pub(crate) async fn first<'a, F: Future>(
    entries: impl Iterator<Item = &'a EntryHandle>,
    resolves: impl Fn(&'a EntryHandle) -> F,
) -> (&'a EntryHandle, F::Output) {
    let each = entries.map(|entry| {
        let resolves = resolves(entry);
        Box::pin(async move { (entry, resolves.await) })
    });
    select_all(each).await.0
}

const PRESENT: &str = "a guard keeps its entry until it is released";

/// Keeps an entry until it is released or dropped.
pub(crate) struct EntryGuard {
    /// `None` once the entry was told to leave, or is kept by other means.
    entry: Option<EntryHandle>,
    /// Why the entry ends, if it is not released.
    end: Option<HoldEnd>,
}

impl EntryGuard {
    /// Keeps this entry, which ends for this reason unless it is released.
    pub(crate) fn of(entry: EntryHandle, end: Option<HoldEnd>) -> Self {
        let entry = Some(entry);
        Self { entry, end }
    }

    /// Makes the entry end for this reason unless it is released.
    pub(crate) fn ends_by(&mut self, end: Option<HoldEnd>) {
        self.end = end;
    }

    /// Returns why the entry ends if it is not released.
    pub(crate) fn end(&self) -> Option<HoldEnd> {
        self.end
    }

    /// Returns the entry to a guard that keeps it from now on.
    pub(crate) fn into_entry(mut self) -> EntryHandle {
        self.take()
    }

    fn take(&mut self) -> EntryHandle {
        self.entry.take().expect(PRESENT)
    }

    /// Removes the entry, and waits for the store's reply if that takes a request.
    pub(crate) async fn release(self) -> Result<(), LockError> {
        // Until here, dropping the guard removes the entry: the future was never polled.
        let (end, entry) = (self.end.unwrap_or(HoldEnd::Released), self.into_entry());
        let core = entry.client.core();
        let started = core.clock.now();
        let mut call = CallGuard::new(core);
        let leave = |call| Input::Leave {
            entry: entry.inner(),
            end,
            call: Some(call),
        };
        let mut step = call.begin(leave).await;
        entry.hold.notify_entry_end();
        loop {
            step = match step {
                Step::Send(request) => call.send(request).await,
                Step::Wait => call.woken().await,
                Step::Left(outcome) => {
                    // The machine may have forgotten the ownership since.
                    let lost = entry.hold.lost(entry.number);
                    let outcome = outcome.and(lost.map_or(Ok(()), Err));
                    return outcome.map_err(|cause| entry.lost_error(cause));
                }
                Step::Refused(Refusal::Failed) => {
                    let action = format!("release lock `{}`", entry.shown());
                    let waited = core.clock.now().since(started);
                    return Err(call.error(&[&entry.hold.key], action, waited));
                }
                step => unreachable!("a release does not lead to {step:?}"),
            };
        }
    }
}

impl Deref for EntryGuard {
    type Target = EntryHandle;

    fn deref(&self) -> &EntryHandle {
        self.entry.as_ref().expect(PRESENT)
    }
}

impl Drop for EntryGuard {
    /// Removes the entry. The background reports a loss, and sends the request.
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let end = match self.end {
                Some(end) => end,
                None if thread::panicking() => HoldEnd::Panicked,
                None => HoldEnd::Released,
            };
            let leave = Input::Leave {
                entry: entry.inner(),
                end,
                call: None,
            };
            entry.core().shell.on_drop(leave);
            entry.hold.notify_entry_end();
        }
    }
}
