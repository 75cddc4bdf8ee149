//! A hold as its handles see it. They share its state, and keep that after its end.

use std::{
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rlock_proto::{
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{Entered, Owner, SlotId},
    mode::LockMode,
    options::Site,
};
use tokio::sync::{Notify, futures::Notified};
use tracing::Span;

use super::elections::Office;

/// What the handles of a hold share, and keep after its end.
pub(crate) struct SharedHold {
    pub(super) slot: SlotId,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: LockMode,
    /// Its fencing token.
    pub(crate) token: u64,
    pub(crate) site: Site,
    notes: OnceLock<Box<Notes>>,
    /// Set if the hold leads.
    pub(crate) office: OnceLock<Box<Office>>,
    /// The cause of its loss, and its entries then.
    lost: OnceLock<Box<(LostCause, Arc<[u32]>)>>,
    /// Until when it is valid unless it is lost, as far as is known without the client's mutex, in nanoseconds. Renewals
    /// make it valid for longer.
    valid_until: AtomicU64,
    /// Notified when an entry has ended, and of a loss, if anything waits for that.
    ended: OnceLock<Box<Notify>>,
    /// Notified of a loss.
    loss: Notify,
}

/// What observers learn of a hold.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) span: Option<Arc<Span>>,
    pub(crate) trace_id: Option<String>,
}

impl SharedHold {
    pub(super) fn new(entered: &Entered, site: Site) -> Self {
        Self {
            slot: entered.entry.slot,
            key: entered.entry.key.clone(),
            owner: entered.entry.owner,
            mode: entered.mode,
            token: entered.token,
            site,
            notes: OnceLock::new(),
            office: OnceLock::new(),
            lost: OnceLock::new(),
            valid_until: AtomicU64::new(0),
            ended: OnceLock::new(),
            loss: Notify::new(),
        }
    }

    /// Marks these entries as lost. Only the first loss counts.
    pub(super) fn lose(&self, cause: LostCause, entries: Arc<[u32]>) {
        let _ = self.lost.set(Box::new((cause, entries)));
    }

    /// Wakes the futures that wait for a loss.
    pub(super) fn notify_loss(&self) {
        self.loss.notify_waiters();
    }

    /// Resolves at the next end of an entry, or loss, after it was enabled. Enable it before you look for one under the client's
    /// mutex, so that none is missed.
    pub(super) fn next_end(&self) -> Notified<'_> {
        self.ended.get_or_init(Box::default).notified()
    }

    /// Returns the cause if the hold was lost.
    pub(super) fn cause(&self) -> Option<LostCause> {
        Some(self.lost.get()?.0)
    }

    /// Resolves when the hold is lost.
    pub(super) async fn until_lost(&self) -> LostCause {
        loop {
            let mut loss = pin!(self.loss.notified());
            loss.as_mut().enable();
            if let Some(cause) = self.cause() {
                return cause;
            }
            loss.await;
        }
    }

    /// Returns whether the hold is known to be valid at this time, unless it is lost.
    pub(super) fn lasts(&self, now: Time) -> bool {
        now.nanos() < self.valid_until.load(Ordering::Acquire)
    }

    /// Notes until when the hold is valid. A hold never becomes valid for a shorter time.
    pub(super) fn lasts_until(&self, end: Time) {
        self.valid_until.fetch_max(end.nanos(), Ordering::AcqRel);
    }

    /// Wakes the futures that wait for the end of an entry, or for a loss.
    pub(super) fn notify(&self) {
        if let Some(ended) = self.ended.get() {
            ended.notify_waiters();
        }
    }

    /// Returns the cause if this entry was lost.
    pub(crate) fn lost(&self, number: u32) -> Option<LostCause> {
        let (cause, entries) = &**self.lost.get()?;
        entries.contains(&number).then_some(*cause)
    }

    pub(super) fn note(&self, notes: Notes) {
        if notes.span.is_some() || notes.trace_id.is_some() {
            let _ = self.notes.set(Box::new(notes));
        }
    }

    pub(super) fn span(&self) -> Option<&Arc<Span>> {
        self.notes.get()?.span.as_ref()
    }

    pub(super) fn trace_id(&self) -> Option<&str> {
        self.notes.get()?.trace_id.as_deref()
    }

    /// Writes an event in the span of the hold, or in the current span without one.
    pub(super) fn in_span(&self, write: impl FnOnce()) {
        match self.span() {
            Some(span) => span.in_scope(write),
            None => write(),
        }
    }
}
