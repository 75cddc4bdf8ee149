//! The state that all handles of a client and its background share.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tokio::sync::SetOnce;
use uuid::Uuid;

use crate::{
    caller::note_caller,
    clock::ClientClock,
    engine::{
        holders::HolderReplies,
        messages::Messages,
        ownership::{LocalQueues, Ownership, ReleaseQueue},
        thread::ClientThread,
        watchdog::{Renewer, Watchdog},
    },
    options::{Options, Reentry},
    owner::OwnerId,
    store::{Event, KeyFilter, Listener, Store},
    sync::{
        Notify,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        enter,
    },
};

pub(crate) struct Core {
    pub(crate) id: Uuid,
    pub(crate) clock: ClientClock,
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) queues: Arc<LocalQueues>,
    pub(crate) messages: Arc<Messages>,
    pub(crate) holder_replies: HolderReplies,
    pub(crate) thread: ClientThread,
    sequence: AtomicU64,
    /// The number of locks that were held when the client was closed.
    closed: SetOnce<usize>,
    background_ended: SetOnce<()>,
    /// Notified when one of the last two is set.
    ending: Notify,
    /// The number of calls that acquire, enter or release.
    calls: AtomicUsize,
}

/// Applies the events of the store.
#[derive(Clone)]
pub(crate) struct EventHandler {
    watchdog: Arc<Watchdog>,
    queues: Arc<LocalQueues>,
    messages: Arc<Messages>,
}

impl EventHandler {
    pub(crate) fn new(options: &Options, clock: &ClientClock) -> Self {
        Self {
            watchdog: Arc::new(Watchdog::new(clock.clone())),
            queues: Arc::new(LocalQueues::new(options.local_handovers, clock.clone())),
            messages: Arc::new(Messages::new(options.answers)),
        }
    }

    pub(crate) fn listener(&self) -> Listener {
        let handler = self.clone();
        Arc::new(move |event| handler.on_event(event))
    }

    fn on_event(&self, event: Event) {
        let queues = &self.queues;
        match event {
            Event::Granted {
                key,
                owner,
                fence,
                ttl,
                wanted,
            } => queues.handed_off(&key, owner, fence, ttl, wanted),
            Event::Wanted { key, owner } => queues.wanted(&key, owner),
            Event::Retry { key, owner, after } => {
                let current = queues.current(&key).filter(|own| own.owner == owner);
                if let Some(ownership) = current {
                    ownership.ask_after(after);
                }
            }
            Event::Message(message) => self.messages.on_message(&message),
            Event::Changed(key) => {
                if let Some(ownership) = queues.current(&key) {
                    self.watchdog.suspect(&ownership);
                    ownership.changed();
                }
            }
            Event::AllChanged => self.may_have_changed(&KeyFilter::all()),
            Event::SomeChanged(filter) => self.may_have_changed(&filter),
            Event::Disconnected => {
                let _ = self.watchdog.doubt_all(&KeyFilter::all());
                queues.ask_again(&KeyFilter::all());
            }
        }
    }

    fn may_have_changed(&self, filter: &KeyFilter) {
        self.watchdog.suspect_all(filter);
        self.queues.ask_again(filter);
    }
}

impl Core {
    pub(crate) fn new(
        id: Uuid,
        clock: ClientClock,
        options: Options,
        store: Arc<dyn Store>,
        handler: EventHandler,
        thread: ClientThread,
    ) -> Self {
        let EventHandler {
            watchdog,
            queues,
            messages,
        } = handler;
        Self {
            id,
            clock,
            options,
            store,
            watchdog,
            queues,
            messages,
            holder_replies: HolderReplies::default(),
            thread,
            sequence: AtomicU64::new(1),
            closed: SetOnce::new(),
            background_ended: SetOnce::new(),
            ending: Notify::new(),
            calls: AtomicUsize::new(0),
        }
    }

    pub(crate) fn fresh_owner(&self) -> OwnerId {
        OwnerId::new(self.id, self.sequence.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn releases(&self) -> &ReleaseQueue {
        &self.queues.releases
    }

    /// Returns a renewer of this client's ownerships.
    pub(crate) fn renewer(&self) -> Arc<Renewer> {
        Arc::new(Renewer {
            watchdog: Arc::clone(&self.watchdog),
            queues: Arc::clone(&self.queues),
            store: Arc::clone(&self.store),
            response_timeout: self.options.response_timeout,
        })
    }

    /// Returns whether the store counts nested entries.
    pub(crate) fn counts_entries(&self) -> bool {
        self.options.reentry == Reentry::Counted
    }

    /// Closes the client: from now on no lock is acquired.
    pub(crate) fn close(&self) {
        // In this order: a new call fails with `Closed`, not with `Draining`.
        let held = self.watchdog.count();
        let _ = self.closed.set(held);
        self.queues.drain();
        self.ending.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.initialized()
    }

    /// Returns how many locks were held when the client was closed.
    pub(crate) fn held_at_close(&self) -> usize {
        self.closed.get().copied().unwrap_or_default()
    }

    /// Notes that the background no longer renews or releases. With `tokio_time`, the timers may have stopped, too.
    pub(crate) fn end_background(&self) {
        let _ = self.background_ended.set(());
        self.ending.notify_waiters();
    }

    pub(crate) fn has_background_ended(&self) -> bool {
        self.background_ended.initialized()
    }

    /// Resolves when the background has ended.
    pub(crate) async fn background_ended(&self) {
        self.background_ended.wait().await;
    }

    /// Counts a call as in progress until the returned value is dropped.
    pub(crate) fn call(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Call(self)
    }

    /// Notes that a call or an entry ended.
    pub(crate) fn ended(&self) {
        if self.queues.is_draining() {
            self.watchdog.ended.notify_waiters();
        }
    }

    /// Resolves when no call is in progress and no lock is held.
    pub(crate) async fn drained(&self) {
        self.until_ended(|| self.watchdog.count() == 0).await;
    }

    /// Resolves when no call is in progress and no body runs inside these ownerships.
    pub(crate) async fn quiet(&self, ownerships: &[Arc<Ownership>]) {
        self.until_ended(|| !ownerships.iter().any(|ownership| ownership.has_body()))
            .await;
    }

    async fn until_ended(&self, nothing_else: impl Fn() -> bool) {
        loop {
            let mut ended = pin!(self.watchdog.ended.notified());
            ended.as_mut().enable();
            let calls = self.calls.load(Ordering::SeqCst);
            if calls == 0 && nothing_else() {
                return;
            }
            ended.await;
        }
    }

    /// Runs a future on the executor that polls it, with the timers of the client's thread.
    pub(crate) async fn in_runtime<F: Future>(&self, future: F) -> F::Output {
        let never = || None::<Infallible>;
        let Ok(output) = self.in_runtime_until(never, future).await;
        output
    }

    /// Runs a future on the executor that polls it, with the timers of the client's thread, until `stop` returns a
    /// reason to end. `stop` is called before each poll and when the client ends.
    pub(crate) async fn in_runtime_until<E, F: Future>(
        &self,
        stop: impl Fn() -> Option<E>,
        future: F,
    ) -> Result<F::Output, E> {
        let mut future = pin!(future);
        let mut ending = pin!(None);
        poll_fn(|cx| {
            let _noted = note_caller();
            let _entered = enter(&self.thread.runtime);
            loop {
                if let Some(end) = stop() {
                    return Poll::Ready(Err(end));
                }
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(Ok(output));
                }
                // Most futures do not wait, and so need no notification.
                if ending.is_none() {
                    ending.set(Some(self.ending.notified()));
                }
                if let Some(Poll::Ready(())) = ending.as_mut().as_pin_mut().map(|it| it.poll(cx)) {
                    ending.set(None);
                    continue;
                }
                // The client may have begun to end just before the notification was requested.
                return stop().map_or(Poll::Pending, |end| Poll::Ready(Err(end)));
            }
        })
        .await
    }
}

/// A call that is in progress.
pub(crate) struct Call<'a>(&'a Core);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
        self.0.ended();
    }
}
