//! What all handles of one client share, and what its background works on.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, sync::SetOnce, time::timeout};
use uuid::Uuid;

use crate::{
    caller::note_caller,
    clock::ClientClock,
    driver::Driver,
    hold::Hold,
    options::{Options, Reentry},
    owner::OwnerId,
    queue::Queues,
    release::ReleaseQueue,
    store::{Listener, News, Route, Store},
    sync::{
        Notify,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        enter,
    },
    watchdog::{Renewer, Watchdog},
};
use crate::{owner::near_name, store::Which};

pub(crate) struct Core {
    pub(crate) id: Uuid,
    pub(crate) clock: ClientClock,
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) queues: Arc<Queues>,
    /// The runtime that provides the timers of calls.
    timers: Handle,
    /// Whether the background is on a runtime that may not be driven.
    may_stand_still: bool,
    sequence: AtomicU64,
    draining: SetOnce<()>,
    closed: SetOnce<()>,
    background_ended: SetOnce<()>,
    /// How many calls are at work on locks.
    calls: AtomicUsize,
    /// Notified of every call and entry that ends while the client drains.
    ended: Notify,
}

/// Who is to know what the store tells without being asked.
#[derive(Clone)]
pub(crate) struct Hearing {
    watchdog: Arc<Watchdog>,
    queues: Arc<Queues>,
}

impl Hearing {
    pub(crate) fn new(options: &Options, clock: &ClientClock) -> Self {
        Self {
            watchdog: Arc::new(Watchdog::new(clock.clone())),
            queues: Arc::new(Queues::new(options.local_handovers)),
        }
    }

    pub(crate) fn listener(&self) -> Listener {
        let hearing = self.clone();
        Arc::new(move |news| hearing.hear(news))
    }

    fn hear(&self, news: News) {
        let Self { queues, .. } = self;
        match news {
            News::Granted {
                key,
                owner,
                block,
                ttl,
                wanted,
            } => queues.granted(&key, owner, block, ttl, wanted),
            News::Wanted { key, .. } => queues.wanted(&key),
            News::AskAgain { key, owner, after } => queues.ask_again(&key, owner, after),
            News::Changed(key) => {
                self.watchdog.suspect(&key);
                queues.changed(&key);
            }
            News::AllChanged => self.may_have_changed(&Which::all()),
            News::SomeChanged(which) => self.may_have_changed(&which),
            News::Disconnected => queues.ask_again_about(&Which::all()),
        }
    }
}

impl Hearing {
    fn may_have_changed(&self, which: &Which) {
        self.watchdog.suspect_all(which);
        self.queues.ask_again_about(which);
    }
}

impl Core {
    pub(crate) fn new(
        id: Uuid,
        clock: ClientClock,
        options: Options,
        store: Arc<dyn Store>,
        hearing: Hearing,
        driver: &Driver,
    ) -> Self {
        let Hearing { watchdog, queues } = hearing;
        Self {
            id,
            clock,
            options,
            store,
            watchdog,
            queues,
            timers: driver.timers.clone(),
            may_stand_still: driver.may_stand_still(),
            sequence: AtomicU64::new(1),
            draining: SetOnce::new(),
            closed: SetOnce::new(),
            background_ended: SetOnce::new(),
            calls: AtomicUsize::new(0),
            ended: Notify::new(),
        }
    }

    /// A new owner, and by which way this client is told of it.
    pub(crate) fn fresh_owner(&self, told_by: Route) -> OwnerId {
        let client = match told_by {
            Route::Home => self.id,
            Route::Near => near_name(self.id),
        };
        OwnerId::new(client, self.sequence.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn releases(&self) -> &ReleaseQueue {
        &self.queues.releases
    }

    /// Returns what renews the holds of this client.
    pub(crate) fn renewer(&self) -> Arc<Renewer> {
        Arc::new(Renewer::new(
            Arc::clone(&self.watchdog),
            Arc::clone(&self.store),
            self.options.response_timeout,
            self.counts_entries(),
        ))
    }

    /// Whether the store is told of nested entries.
    pub(crate) fn counts_entries(&self) -> bool {
        self.options.reentry == Reentry::Counted
    }

    /// Starts draining: from now on only calls inside of a hold acquire locks.
    pub(crate) fn drain(&self) {
        let _ = self.draining.set(());
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    pub(crate) async fn draining(&self) {
        self.draining.wait().await;
    }

    /// From here on nothing is acquired.
    pub(crate) fn close(&self) {
        // In this order: a call that waits fails with `Closed`, not with `Draining`.
        let _ = self.closed.set(());
        self.drain();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Counts a call as at work until the answer is dropped.
    pub(crate) fn call(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Call(self)
    }

    /// A call or an entry ended.
    pub(crate) fn ended(&self) {
        if self.is_draining() {
            self.ended.notify_waiters();
        }
    }

    /// Resolves when no call is in progress and no lock is held.
    pub(crate) async fn drained(&self) {
        self.until_ended(|| self.watchdog.count() == 0).await;
    }

    /// Resolves when no call is at work, and no body runs inside any of these holds.
    pub(crate) async fn quiet(&self, holds: &[Arc<Hold>]) {
        self.until_ended(|| !holds.iter().any(|hold| hold.has_body()))
            .await;
    }

    async fn until_ended(&self, nothing_else: impl Fn() -> bool) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            let calls = self.calls.load(Ordering::Acquire);
            if calls == 0 && nothing_else() {
                return;
            }
            ended.await;
        }
    }

    /// Nobody renews or releases in the background any more. On a runtime of the user's that may
    /// mean that there are no timers either.
    pub(crate) fn end_background(&self) {
        let _ = self.background_ended.set(());
    }

    pub(crate) async fn background_ended(&self) {
        self.background_ended.wait().await;
    }

    pub(crate) async fn closed(&self) {
        self.closed.wait().await;
    }

    /// Runs a future of ours, whose timers are the client's own, on whatever executor polls it.
    pub(crate) async fn in_runtime<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let _noted = note_caller();
            let _entered = enter(&self.timers);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Runs a future that depends on the background. Returns `None` if the user's runtime is not
    /// driven and the limit has passed. Otherwise the future's own time-outs end it.
    pub(crate) async fn in_runtime_within<F: Future>(
        &self,
        limit: Option<Duration>,
        future: F,
    ) -> Option<F::Output> {
        // Pinned once, not moved into each branch.
        let future = pin!(future);
        match limit {
            Some(limit) if self.may_stand_still => {
                let in_time = self.in_runtime(async { timeout(limit, future).await });
                in_time.await.ok()
            }
            _ => Some(self.in_runtime(future).await),
        }
    }
}

/// A call that is at work.
pub(crate) struct Call<'a>(&'a Core);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
        self.0.ended();
    }
}
