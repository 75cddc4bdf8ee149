//! One entry's handle on the ownership that it uses, until the entry ends.

use std::{
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    pin::pin,
    sync::Arc,
    thread,
    time::Duration,
};

use tracing::Span;

use crate::{
    engine::{
        core::Core,
        driver::ClientHandle,
        ownership::{EntryId, Ownership},
        release,
    },
    error::{LockError, LostCause},
    lease::Time,
    observe::HoldEnd,
};

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) client: ClientHandle,
    pub(crate) ownership: Arc<Ownership>,
    /// The fencing token of the hold.
    pub(crate) token: u64,
    id: EntryId,
}

// No foreign code runs while the state of an ownership changes.
impl UnwindSafe for Entry {}
impl RefUnwindSafe for Entry {}

impl Entry {
    pub(crate) fn core(&self) -> &Core {
        self.client.core()
    }

    pub(crate) fn key(&self) -> &str {
        self.ownership.key.as_str()
    }

    /// Returns the number of entries of the hold.
    pub(crate) fn count(&self) -> u32 {
        self.ownership.count(self.token)
    }

    /// Marks that a body runs inside, and returns its span. The body stops when the lock is lost.
    pub(crate) fn runs_body(&self) -> Option<Arc<Span>> {
        self.ownership.runs_body(self.id)
    }

    /// Returns the cause if the entry is no longer valid. Reports a loss that was not reported before.
    ///
    /// Does not check whether the entry has left; see [`Entry::left`].
    pub(crate) fn broken(&self, now: Time) -> Option<LostCause> {
        let cause = self.ownership.broken(now)?;
        if self.ownership.lost().is_none() {
            self.core().watchdog.lose(&self.ownership, cause);
        }
        Some(cause)
    }

    /// Returns the cause if the entry has left: `Released`, unless the lock was lost before.
    pub(crate) fn left(&self) -> Option<LostCause> {
        self.ownership.left(self.id)
    }

    /// Adds an entry to the same hold. Sends no request.
    pub(crate) fn keep(&self) -> Result<EntryGuard, LockError> {
        let kept = match self.left().or_else(|| self.broken(self.now())) {
            None => self.ownership.keep(self.id).ok_or(LostCause::Released),
            Some(cause) => Err(cause),
        };
        let id = kept.map_err(|cause| self.ownership.lost_error(cause))?;
        Ok(EntryGuard {
            entry: Self { id, ..self.clone() },
            left: false,
            end: None,
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.core().clock.now()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let now = self.now();
        if self.broken(now).is_some() {
            return Duration::ZERO;
        }
        self.ownership.ends_at().since(now)
    }

    /// Resolves when the entry has left or the lock is lost.
    pub(crate) async fn lost(&self) -> LostCause {
        self.ownership.until_ended(self.id).await
    }

    /// Releases the lock after the entry was removed. `broken` is the cause if the hold was lost before.
    async fn settle(&self, broken: Option<LostCause>) -> Result<(), LockError> {
        let core = self.core();
        let stop = || {
            core.has_background_ended().then(|| {
                core.watchdog
                    .lose_at_release(&self.ownership, LostCause::Closed);
                self.ownership.lost_error(LostCause::Closed)
            })
        };
        // Boxed, so that the futures of callers stay small.
        let settled = Box::pin(async {
            let mut settled = pin!(release::settle_now(core, &self.ownership, broken));
            core.in_runtime_until(stop, settled.as_mut()).await
        });
        settled.await?
    }

    fn leave(&self, end: HoldEnd) {
        // The last chance to notice a loss by the clock.
        let watchdog = &self.core().watchdog;
        if let Some(cause) = self.ownership.broken(self.now())
            && self.ownership.lost().is_none()
            && watchdog.lose_unreported(&self.ownership, cause)
        {
            watchdog.report_later(&self.ownership, cause);
        }
        release::leave_in_background(self.core(), &self.ownership, (self.id, end));
    }
}

/// Keeps an entry until it is released or dropped.
pub(crate) struct EntryGuard {
    entry: Entry,
    /// Whether the entry was removed from its ownership.
    left: bool,
    /// Why the entry ends, if it is not released.
    end: Option<HoldEnd>,
}

impl EntryGuard {
    /// Guards an entry that has begun. From now on the watchdog tracks its ownership.
    pub(crate) fn new(
        client: &ClientHandle,
        ownership: &Arc<Ownership>,
        (id, token): (EntryId, u64),
        now: Time,
    ) -> Self {
        client.core().watchdog.track(ownership, now);
        let entry = Entry {
            client: client.clone(),
            ownership: Arc::clone(ownership),
            token,
            id,
        };
        Self {
            entry,
            left: false,
            end: None,
        }
    }

    /// Notes why the entry is about to end.
    pub(crate) fn ends_by(&mut self, end: HoldEnd) {
        self.end = Some(end);
    }

    /// Removes the entry, and waits for the store's reply if that takes a request.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let (entry, core) = (&self.entry, self.entry.client.core());
        let _call = core.call();
        let now = core.clock.now();
        let broken = entry.broken(now);
        let end = self.end.unwrap_or(HoldEnd::Released);
        // Until here, dropping the guard removes the entry: the future was never polled, or a subscriber panicked.
        self.left = true;
        let left = release::leave(core, &entry.ownership, (entry.id, end), broken, now);
        match left {
            Some(outcome) => outcome,
            None => entry.settle(broken).await,
        }
    }
}

impl Deref for EntryGuard {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl Drop for EntryGuard {
    /// Removes the entry. The background reports a loss, and sends the request.
    fn drop(&mut self) {
        if !self.left {
            let end = match self.end {
                Some(end) => end,
                None if thread::panicking() => HoldEnd::Panicked,
                None => HoldEnd::Released,
            };
            self.entry.leave(end);
        }
    }
}
