//! The watchdog: one timer for all ownerships. It renews leases in batches, retries before a lease ends, and reports
//! losses.

mod failure;
mod renewal;
mod schedule;

use std::{slice, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tracing::field;

use self::{failure::Failure, renewal::Batch, schedule::Schedule};
use crate::{
    clock::ClientClock,
    engine::ownership::{Action, LocalQueues, Ownership},
    error::LostCause,
    escape_control::escape_control,
    lease::Time,
    metrics,
    store::{KeyFilter, Store},
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The longest sleep of the timer while ownerships are tracked. Timers stand still while the machine sleeps,
/// leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How often the turns of calls that are not polled are taken back, while calls wait for them.
const BETWEEN_CHECKS: Duration = Duration::from_millis(250);

/// Tracks every ownership that may be lost.
#[derive(Default)]
pub(crate) struct Watchdog {
    clock: ClientClock,
    schedule: Mutex<Schedule>,
    unreported: Mutex<Unreported>,
    wake: Notify,
    /// Notified when an ownership is lost and, while the client drains, when a call or an entry ends.
    pub(super) ended: Notify,
    /// The number of losses so far.
    losses: AtomicU64,
}

/// Writes a report that a destructor left to the background.
type Write = Box<dyn FnOnce(&Watchdog) + Send>;

/// The events that the watchdog's task logs when it wakes up.
#[derive(Default)]
struct Unreported {
    /// The losses and the ends of spans that a destructor has noticed.
    of_destructors: Vec<Write>,
    /// Failed renewals. Those of one round share one log line.
    failures: Vec<Failure>,
}

impl Watchdog {
    pub(crate) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreported(&self) -> MutexGuard<'_, Unreported> {
        self.unreported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks an ownership, or checks it earlier.
    pub(crate) fn track(&self, ownership: &Arc<Ownership>, now: Time) {
        // Most entries need no earlier check than is scheduled.
        if ownership.missing_deadline(now).is_some() && self.schedule().track(ownership, now) {
            self.wake.notify_one();
        }
    }

    /// Stops tracking an ownership, unless the client still owns it.
    pub(crate) fn forget(&self, ownership: &Arc<Ownership>) {
        self.schedule().forget(ownership);
    }

    /// Checks an ownership at once, because another client changed the lock.
    pub(crate) fn suspect(&self, ownership: &Arc<Ownership>) {
        // Read before the check, which may find the loss at once.
        let is_owned = ownership.is_owned();
        ownership.doubt();
        self.check_now(slice::from_ref(ownership));
        if is_owned {
            ownership.in_span(|| {
                let key = escape_control(ownership.shown());
                tracing::debug!(%key, owner = %ownership.owner, "another client changed the lock");
            });
        }
    }

    /// Checks all ownerships of these keys at once.
    pub(crate) fn suspect_all(&self, filter: &KeyFilter) {
        self.check_now(&self.doubt_all(filter));
    }

    /// Stops local hand-overs of these ownerships until they are confirmed, because changes are not reported. Returns
    /// the ownerships.
    pub(crate) fn doubt_all(&self, filter: &KeyFilter) -> Vec<Arc<Ownership>> {
        let mut ownerships = self.schedule().ownerships();
        ownerships.retain(|ownership| filter.matches(&ownership.key));
        for ownership in &ownerships {
            ownership.doubt();
        }
        ownerships
    }

    fn check_now(&self, ownerships: &[Arc<Ownership>]) {
        {
            let (mut schedule, now) = (self.schedule(), self.clock.now());
            for ownership in ownerships {
                schedule.suspect(ownership, now);
            }
        }
        self.wake.notify_one();
    }

    /// Marks an ownership as lost and logs the loss.
    pub(crate) fn lose(&self, ownership: &Arc<Ownership>, cause: LostCause) {
        if self.lose_unreported(ownership, cause) {
            self.report(ownership, cause);
        }
    }

    /// Marks an ownership as lost without logging it. Returns whether the caller has to log the loss.
    pub(crate) fn lose_unreported(&self, ownership: &Arc<Ownership>, cause: LostCause) -> bool {
        let is_new = ownership.lose(cause);
        self.forget(ownership);
        // Wakes `drain`: the guard of a lost lock may never be dropped.
        self.ended.notify_waiters();
        is_new
    }

    /// Makes the background log a loss. A thread's destructor must not log: the thread-locals of a subscriber may be
    /// gone, and a panic would abort the process.
    pub(crate) fn report_later(&self, ownership: &Arc<Ownership>, cause: LostCause) {
        let ownership = Arc::clone(ownership);
        self.write_later(Box::new(move |watchdog| watchdog.report(&ownership, cause)));
    }

    /// Makes the background close a span. A destructor must not, for the same reasons.
    pub(crate) fn close_later(&self, close: impl FnOnce() + Send + 'static) {
        self.write_later(Box::new(|_| close()));
    }

    fn write_later(&self, write: Write) {
        self.unreported().of_destructors.push(write);
        self.wake.notify_one();
    }

    /// Makes the background log a failed renewal, together with others that fail at the same time.
    fn report_failure(&self, failure: Failure) {
        self.unreported().failures.push(failure);
        self.wake.notify_one();
    }

    fn report_unreported(&self) {
        let Unreported {
            of_destructors,
            failures,
        } = std::mem::take(&mut *self.unreported());
        for write in of_destructors {
            write(self);
        }
        failure::report(self, &failures);
    }

    /// Returns the number of tracked ownerships.
    pub(crate) fn count(&self) -> usize {
        self.schedule().count()
    }

    /// Marks every ownership as lost. They stay tracked until they are released.
    pub(crate) fn lose_all(&self, cause: LostCause) -> Vec<Arc<Ownership>> {
        self.report_unreported();
        let ownerships = self.schedule().ownerships();
        for ownership in &ownerships {
            if ownership.lose(cause) {
                self.report(ownership, cause);
            }
        }
        ownerships
    }

    /// Reports a loss that the release found after the last entry left.
    pub(crate) fn lose_at_release(&self, ownership: &Ownership, cause: LostCause) {
        if ownership.lose_at_release(cause) {
            self.report(ownership, cause);
        }
    }

    /// Counts and logs a loss. The part of the client that notices the loss first calls this once.
    pub(crate) fn report(&self, ownership: &Ownership, cause: LostCause) {
        self.count_loss(ownership, cause);
        ownership.in_span_of_loss(|| {
            let key = escape_control(ownership.shown());
            // After a hand-off, the lease is shorter than the call asked for.
            let lease =
                (cause == LostCause::Expired).then(|| field::debug(ownership.confirmed_lease()));
            tracing::warn!(%key, owner = %ownership.owner, %cause, lease, "lock lost");
        });
    }

    pub(crate) fn count_loss(&self, ownership: &Ownership, cause: LostCause) {
        self.losses.fetch_add(1, Ordering::Relaxed);
        ownership.metrics().lost(cause);
    }

    /// Returns the number of losses so far.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}

/// Renews the ownerships that a watchdog tracks.
pub(crate) struct Renewer {
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) queues: Arc<LocalQueues>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) response_timeout: Duration,
}

impl Renewer {
    /// Runs for as long as the client lives.
    pub(crate) async fn run(self: Arc<Self>) {
        let watchdog = &self.watchdog;
        let mut tasks = JoinSet::new();
        let (mut calls_wait, mut next_check) = (true, watchdog.clock.now());
        loop {
            while tasks.try_join_next().is_some() {}
            watchdog.report_unreported();
            let renew = self.check_due();
            if !renew.is_empty() {
                tasks.spawn(renewal::run(Arc::clone(&self), renew));
            }
            let now = watchdog.clock.now();
            if calls_wait && now >= next_check {
                calls_wait = self.queues.take_back_turns();
                next_check = now + BETWEEN_CHECKS;
            }
            let pause = watchdog.schedule().go_to_sleep(now, LONGEST_SLEEP);
            tokio::select! {
                () = watchdog.wake.notified() => {}
                () = self.queues.waits.notified() => calls_wait = true,
                () = sleep(Some(BETWEEN_CHECKS)), if calls_wait => {}
                () = sleep(pause) => {
                    let planned = now + pause.unwrap_or_default();
                    metrics::overslept(watchdog.clock.now().since(planned));
                }
            }
        }
    }

    /// Checks the ownerships that are due, and reports losses. Returns the renewals to send.
    fn check_due(&self) -> Vec<Batch> {
        let watchdog = &self.watchdog;
        let due = watchdog.schedule().take_due(watchdog.clock.now());
        let mut renew = Vec::new();
        for (ownership, action) in due {
            match action {
                Action::Lose(cause) => watchdog.lose(&ownership, cause),
                Action::Renew(lease) => {
                    renew.push(((lease, self.store.group(&ownership.key)), ownership));
                }
                Action::EndRetention => {
                    ownership.end_retention();
                }
                Action::Wait => {}
            }
        }
        renewal::batches(renew)
    }

    /// Checks the ownerships that are due, and renews them one batch after another.
    #[cfg(all(test, shuttle))]
    pub(crate) async fn check(&self) {
        for batch in self.check_due() {
            renewal::renew(self, batch).await;
        }
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
