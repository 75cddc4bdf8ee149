//! The record of a hold, which its handles and its body share and keep after its end: until when it is valid, whether
//! it is lost or asked to release its lock, and its passenger.

use std::{
    any::Any,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rlock_proto::{
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{Entered, Owner, SlotId},
    mode::LockMode,
};
use tokio::sync::{Notify, futures::Notified};
use tracing::Span;

use crate::info::Holder;

/// The record of a hold.
pub(crate) struct HoldRecord {
    pub(super) slot: SlotId,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: LockMode,
    /// Its fencing token.
    pub(crate) token: u64,
    notes: OnceLock<Box<Notes>>,
    passenger: OnceLock<Arc<dyn Passenger>>,
    /// Whether it was announced, so that its end is announced, too.
    pub(super) is_announced: AtomicBool,
    /// The cause of its loss, and its entries then. The shell sets it under its mutex.
    lost: OnceLock<Box<(LostCause, Arc<[u32]>)>>,
    /// Until when it is valid unless it is lost, as far as is known without the client's mutex, in nanoseconds. Renewals
    /// make it valid for longer. Set under the mutex.
    valid_until: AtomicU64,
    /// Whether another client has requested the release of the lock.
    is_requested: AtomicBool,
    /// Notified of a loss, of a request to release, of an extension, and when an entry has ended if a future waits for that.
    changed: Notify,
    /// Whether a future waits for the end of an entry. A body that waits only for a loss is not woken by nested calls.
    awaits_entries: AtomicBool,
}

/// What a holder attaches to its hold, by which other clients reach the holder.
pub(crate) trait Passenger: Any + Send + Sync {
    /// Adds what the holder tells other clients to the description of its hold.
    fn describe(&self, holder: &mut Holder);

    /// Handles that the hold has ended or is lost. A hold that is lost also ends later.
    fn ends(&self);
}

/// What observers learn of a hold.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) span: Option<Arc<Span>>,
    pub(crate) trace_id: Option<String>,
}

impl HoldRecord {
    pub(super) fn new(entered: &Entered) -> Self {
        Self {
            slot: entered.entry.slot,
            key: entered.entry.key.clone(),
            owner: entered.entry.owner,
            mode: entered.mode,
            token: entered.token,
            notes: OnceLock::new(),
            passenger: OnceLock::new(),
            is_announced: AtomicBool::new(false),
            lost: OnceLock::new(),
            valid_until: AtomicU64::new(0),
            is_requested: AtomicBool::new(false),
            changed: Notify::new(),
            awaits_entries: AtomicBool::new(false),
        }
    }

    /// Marks these entries as lost. Only the first loss counts.
    pub(super) fn lose(&self, cause: LostCause, entries: Arc<[u32]>) {
        let _ = self.lost.set(Box::new((cause, entries)));
    }

    /// Returns the cause if the hold was lost.
    pub(super) fn cause(&self) -> Option<LostCause> {
        Some(self.lost.get()?.0)
    }

    /// Returns the cause if this entry was lost.
    pub(super) fn lost(&self, number: u32) -> Option<LostCause> {
        let (cause, entries) = &**self.lost.get()?;
        entries.contains(&number).then_some(*cause)
    }

    /// Resolves when the hold is lost.
    pub(super) async fn until_lost(&self) -> LostCause {
        self.until(|| self.cause()).await
    }

    /// Passes on that another client asks the holder to release the lock.
    pub(super) fn request_release(&self) {
        self.is_requested.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Resolves when another client has asked the holder to release the lock.
    pub(super) async fn until_requested(&self) {
        let requested = || self.is_requested.load(Ordering::Acquire).then_some(());
        self.until(requested).await;
    }

    /// Resolves when `ended`, which reads the machine, returns a cause. Calls it at first, and again after each end of
    /// an entry.
    pub(super) async fn until_entry_ends(
        &self,
        ended: impl Fn() -> Option<LostCause>,
    ) -> LostCause {
        // Relaxed, because the client's mutex orders it: it is set before the machine is read, and read after the
        // machine has changed.
        self.awaits_entries.store(true, Ordering::Relaxed);
        self.until(ended).await
    }

    async fn until<T>(&self, ended: impl Fn() -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before the call of `ended`, so that no change is missed.
            changed.as_mut().enable();
            if let Some(end) = ended() {
                return end;
            }
            changed.await;
        }
    }

    /// Resolves at the next loss, request or shorter lease.
    pub(super) fn changes(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes the futures that wait until the hold will soon be lost.
    pub(super) fn notify_lease(&self) {
        self.changed.notify_waiters();
    }

    /// Wakes the futures that wait for a loss.
    pub(super) fn notify_loss(&self) {
        self.changed.notify_waiters();
    }

    /// Wakes the futures that wait for the end of an entry.
    pub(super) fn notify_entry_end(&self) {
        if self.awaits_entries.load(Ordering::Relaxed) {
            self.changed.notify_waiters();
        }
    }

    /// Returns whether the hold is known to be valid at this time, unless it is lost.
    pub(super) fn lasts(&self, now: Time) -> bool {
        now.nanos() < self.valid_until.load(Ordering::Acquire)
    }

    /// Notes until when the hold is valid: for longer after a renewal, for a shorter time after an extension by a shorter lease.
    pub(super) fn lasts_until(&self, end: Time) {
        self.valid_until.store(end.nanos(), Ordering::Release);
    }

    /// Carries a passenger, or returns the one that the hold carries already.
    pub(super) fn carry<P: Passenger>(&self, passenger: impl FnOnce() -> P) -> Arc<P> {
        let carried = self.passenger.get_or_init(|| Arc::new(passenger()));
        let carried: Arc<dyn Any + Send + Sync> = Arc::clone(carried) as _;
        carried.downcast().expect("all passengers are of one type")
    }

    pub(super) fn passenger(&self) -> Option<&dyn Passenger> {
        self.passenger.get().map(|passenger| &**passenger)
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

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        pin::Pin,
        sync::{
            Arc, Mutex,
            atomic::{AtomicU32, Ordering},
        },
        task::{Context, Poll, Wake, Waker},
    };

    use super::*;
    use crate::{LockClient, current};

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wakes {
        fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
            let waker = Waker::from(Arc::clone(self));
            future.poll(&mut Context::from_waker(&waker))
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_shorter_lease_brings_the_noted_end_nearer() {
        let client = LockClient::in_memory();
        let guard = client.lock("k").acquire_blocking().expect("free");
        let (hold, at) = (&guard.first().hold, Time::from_nanos);
        hold.lasts_until(at(9));
        assert!(hold.lasts(at(8)));
        hold.lasts_until(at(5));
        assert!(hold.lasts(at(4)) && !hold.lasts(at(5)));
    }

    #[test]
    fn the_end_of_an_entry_wakes_the_futures_that_wait_for_it_and_otherwise_not_even_the_body() {
        let client = LockClient::in_memory();
        let (of_body, of_handle) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
        let inside = Mutex::new(None);
        let mut run = Box::pin(client.lock("k").run(async {
            let hold = current().expect("inside");
            let guards = [hold.guard(), hold.guard()].map(|guard| guard.expect("held"));
            *inside.lock().expect("no panic") = Some((hold, guards));
            pending::<()>().await;
        }));
        assert!(of_body.poll(run.as_mut()).is_pending());
        let (hold, [first, second]) = inside.lock().expect("no panic").take().expect("it ran");
        drop(first);
        assert_eq!(of_body.count(), 0);
        let mut lost = pin!(hold.lost());
        assert!(of_handle.poll(lost.as_mut()).is_pending());
        drop(second);
        assert_eq!(of_handle.count(), 1);
        assert!(
            of_handle.poll(lost.as_mut()).is_pending(),
            "another entry has ended"
        );
        drop(run);
        assert_eq!(of_handle.count(), 2);
        assert_eq!(
            of_handle.poll(lost.as_mut()),
            Poll::Ready(LostCause::Released)
        );
    }
}
