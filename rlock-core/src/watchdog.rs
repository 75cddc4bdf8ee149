//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and reports lost holds.

mod backlog;
mod failure;
mod renewal;
mod schedule;
mod sleep;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use self::{
    failure::Failure,
    renewal::Batch,
    schedule::{Due, Schedule},
};
use crate::store::{Store, Which};
use crate::{
    clock::ClientClock,
    error::LostCause,
    hold::{Action, Hold},
    key::Key,
    lease::Time,
    sync::{Mutex, MutexGuard, Notify, PoisonError},
};

/// The longest sleep of the timer while there are holds. Timers stand still while the machine sleeps,
/// leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Tracks every hold that may be lost.
pub(crate) struct Watchdog {
    clock: ClientClock,
    schedule: Mutex<Schedule>,
    unreported: Mutex<Unreported>,
    wake: Notify,
}

/// What the watchdog's task logs when it wakes up.
#[derive(Default)]
struct Unreported {
    /// Losses that a destructor noticed.
    losses: Vec<(Arc<Hold>, LostCause)>,
    /// Failed renewals. Those of one round share a line.
    failures: Vec<Failure>,
}

impl Watchdog {
    pub(crate) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            schedule: Mutex::default(),
            unreported: Mutex::default(),
            wake: Notify::new(),
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

    /// Tracks a hold, or updates when it is due.
    pub(crate) fn track(&self, hold: &Arc<Hold>) {
        let (former, wake) = self.schedule().insert(hold, self.clock.now());
        if let Some(former) = former {
            // The store granted the key to another owner, so the former hold is gone.
            if former.lose(LostCause::Removed) {
                report(&former, LostCause::Removed);
            }
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// Stops tracking a hold, unless it is held: a nested acquire may have entered it just now.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.schedule().remove_unless_held(hold);
    }

    /// Returns whether this client holds the lock of this key.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.hold(key).is_some_and(|hold| hold.is_held())
    }

    pub(crate) fn hold(&self, key: &Key) -> Option<Arc<Hold>> {
        self.schedule().hold(key)
    }

    /// Checks the hold of this key at once, because another client changed the lock.
    pub(crate) fn suspect(&self, key: &Key) {
        self.check_now(|schedule, now| {
            if let Some(hold) = schedule.hold(key).filter(|hold| !hold.is_echo()) {
                schedule.suspect(&hold, now);
            }
        });
    }

    /// Checks all holds of these keys at once.
    pub(crate) fn suspect_all(&self, which: &Which) {
        self.check_now(|schedule, now| schedule.suspect_all(which, now));
    }

    fn check_now(&self, change: impl FnOnce(&mut Schedule, Time)) {
        let now = self.clock.now();
        let wake = {
            let mut schedule = self.schedule();
            change(&mut schedule, now);
            schedule.first_due().is_some_and(|due| due <= now)
        };
        if wake {
            self.wake.notify_one();
        }
    }

    /// Marks a hold as lost and logs the loss.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, cause: LostCause) {
        if self.lose_unreported(hold, cause) {
            report(hold, cause);
        }
    }

    /// Marks a hold as lost without logging it. Returns whether the caller has to log the loss.
    pub(crate) fn lose_unreported(&self, hold: &Arc<Hold>, cause: LostCause) -> bool {
        let is_news = hold.lose(cause);
        self.forget(hold);
        is_news
    }

    /// Has the background log a loss. A thread's destructor must not: the thread-locals of a subscriber may be
    /// gone, and a panic would abort the process.
    pub(crate) fn report_later(&self, hold: &Arc<Hold>, cause: LostCause) {
        self.unreported().losses.push((Arc::clone(hold), cause));
        self.wake.notify_one();
    }

    /// Has the background log a failed renewal, together with others that fail at the same time.
    fn report_failure(&self, failure: Failure) {
        self.unreported().failures.push(failure);
        self.wake.notify_one();
    }

    fn report_unreported(&self) {
        let Unreported { losses, failures } = std::mem::take(&mut *self.unreported());
        for (hold, cause) in losses {
            report(&hold, cause);
        }
        failure::report(self, &failures);
    }

    /// Returns the number of held locks.
    pub(crate) fn count(&self) -> usize {
        self.schedule().count()
    }

    /// Marks every hold as lost. They stay tracked until they are given back.
    pub(crate) fn lose_all(&self, cause: LostCause) -> Vec<Arc<Hold>> {
        self.report_unreported();
        let holds = self.schedule().holds();
        for hold in &holds {
            if hold.lose(cause) {
                report(hold, cause);
            }
        }
        holds
    }
}

/// Reports a loss that was found by the release after the last entry left.
pub(crate) fn lose_at_release(hold: &Hold, cause: LostCause) {
    if hold.lose_at_release(cause) {
        report(hold, cause);
    }
}

/// Logs a loss. The first part of the client that notices a loss calls this, once.
pub(crate) fn report(hold: &Hold, cause: LostCause) {
    tracing::warn!(key = %hold.key, owner = %hold.owner, %cause, "lock lost");
}

/// Renews the holds that a watchdog tracks.
pub(crate) struct Renewer {
    watchdog: Arc<Watchdog>,
    store: Arc<dyn Store>,
    response_timeout: Duration,
    /// Whether the store is told of nested entries.
    counts_entries: bool,
}

impl Renewer {
    pub(crate) fn new(
        watchdog: Arc<Watchdog>,
        store: Arc<dyn Store>,
        response_timeout: Duration,
        counts_entries: bool,
    ) -> Self {
        Self {
            watchdog,
            store,
            response_timeout,
            counts_entries,
        }
    }

    /// Runs for as long as the client lives.
    pub(crate) async fn run(self: Arc<Self>) {
        let watchdog = &self.watchdog;
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            watchdog.report_unreported();
            let Checked { renew, verify } = self.check_due();
            if !renew.is_empty() {
                tasks.spawn(renewal::run(Arc::clone(&self), renew));
            }
            if !verify.is_empty() {
                tasks.spawn(Arc::clone(&self).verify(verify));
            }
            let now = watchdog.clock.now();
            let pause = watchdog.schedule().go_to_sleep(now, LONGEST_SLEEP);
            tokio::select! {
                () = watchdog.wake.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Reports what is lost among the holds that are due, and returns what is to be asked of the store.
    fn check_due(&self) -> Checked {
        let watchdog = &self.watchdog;
        let due = watchdog.schedule().take_due(watchdog.clock.now());
        let (mut renew, mut verify) = (Vec::new(), Vec::new());
        for Due {
            hold,
            action,
            beyond_max_hold,
        } in due
        {
            for _ in 0..beyond_max_hold {
                report(&hold, LostCause::MaxHold);
            }
            match action {
                Action::Lose(cause) => watchdog.lose(&hold, cause),
                Action::Renew(lease) => renew.push(((lease, self.store.group(&hold.key)), hold)),
                Action::GiveBack => hold.end_retention(),
                Action::Verify => verify.push(hold),
                Action::Wait | Action::LetRunOut => {}
            }
        }
        Checked {
            renew: renewal::batches(renew),
            verify,
        }
    }

    /// Asks the store whether holds that are not renewed still exist.
    async fn verify(self: Arc<Self>, holds: Vec<Arc<Hold>>) {
        let watchdog = &self.watchdog;
        for (done, hold) in holds.iter().enumerate() {
            match self.store.inspect(&hold.key, self.response_timeout).await {
                Ok(Some(entry)) if entry.count > 0 && entry.owner == hold.owner.to_string() => {}
                Ok(_) => watchdog.lose(hold, LostCause::Removed),
                Err(error) if error.foreign => watchdog.lose(hold, LostCause::Removed),
                Err(_) => {
                    let later = watchdog.clock.now() + LONGEST_SLEEP;
                    return watchdog.schedule().verify(&holds[done..], later);
                }
            }
        }
    }

    /// Checks the holds that are due, and renews them one batch after another.
    #[cfg(all(test, shuttle))]
    pub(crate) async fn check(&self) {
        for batch in self.check_due().renew {
            renewal::renew(self, batch).await;
        }
    }
}

/// What is to be asked of the store.
struct Checked {
    renew: Vec<Batch>,
    verify: Vec<Arc<Hold>>,
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
