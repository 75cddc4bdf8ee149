//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and tells the hold when it is lost.

mod agenda;
mod attempt;
mod cohort;
mod line;
mod round;
mod sleep;

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use self::{
    agenda::{Agenda, Came},
    round::Message,
};
use crate::store::Which;
use crate::{
    clock::ClientClock,
    core::Core,
    error::LostCause,
    hold::{Duty, Hold},
    key::Key,
    lease::Time,
    sync::{Mutex, MutexGuard, Notify, PoisonError},
};

/// The timer looks at the clock at least this often while there are holds: timers stand still while
/// the machine sleeps, leases do not.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after every hold that may be lost.
pub(crate) struct Watchdog {
    clock: ClientClock,
    agenda: Mutex<Agenda>,
    /// Losses that a destructor noticed.
    unreported: Mutex<Vec<(Arc<Hold>, LostCause)>>,
    wake: Notify,
}

impl Watchdog {
    pub(crate) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            agenda: Mutex::default(),
            unreported: Mutex::default(),
            wake: Notify::new(),
        }
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreported(&self) -> MutexGuard<'_, Vec<(Arc<Hold>, LostCause)>> {
        self.unreported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a hold in charge, or looks anew at when it is due.
    pub(crate) fn track(&self, hold: &Arc<Hold>) {
        let (former, wake) = self.agenda().insert(hold, self.clock.now());
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

    /// Stops looking at a hold, unless it is held: a nested acquire may have entered it just now.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.agenda().remove_unless_held(hold);
    }

    /// Returns whether this client holds the lock of this key.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.hold(key).is_some_and(|hold| hold.is_held())
    }

    pub(crate) fn hold(&self, key: &Key) -> Option<Arc<Hold>> {
        self.agenda().hold(key)
    }

    /// Looks at the hold of this key at once, if there is one.
    pub(crate) fn suspect(&self, key: &Key) {
        self.look(|agenda, now| {
            if let Some(hold) = agenda.hold(key).filter(|hold| !hold.is_echo()) {
                agenda.suspect(&hold, now);
            }
        });
    }

    /// Looks at all holds of these keys at once.
    pub(crate) fn suspect_all(&self, which: &Which) {
        self.look(|agenda, now| agenda.suspect_all(which, now));
    }

    fn look(&self, put_down: impl FnOnce(&mut Agenda, Time)) {
        let now = self.clock.now();
        let wake = {
            let mut agenda = self.agenda();
            put_down(&mut agenda, now);
            agenda.first_due().is_some_and(|due| due <= now)
        };
        if wake {
            self.wake.notify_one();
        }
    }

    /// Tells a hold that it is lost.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, cause: LostCause) {
        if self.lose_unreported(hold, cause) {
            report(hold, cause);
        }
    }

    /// Marks a hold as lost without logging it. Returns whether the caller has to log the loss.
    pub(crate) fn lose_unreported(&self, hold: &Arc<Hold>, cause: LostCause) -> bool {
        let news = hold.lose(cause);
        self.forget(hold);
        news
    }

    /// Has the background log a loss. A thread's destructor must not: the thread-locals of a subscriber may be
    /// gone, and a panic would abort the process.
    pub(crate) fn report_later(&self, hold: &Arc<Hold>, cause: LostCause) {
        self.unreported().push((Arc::clone(hold), cause));
        self.wake.notify_one();
    }

    fn report_unreported(&self) {
        let unreported = std::mem::take(&mut *self.unreported());
        for (hold, cause) in unreported {
            report(&hold, cause);
        }
    }

    /// Returns the number of held locks.
    pub(crate) fn count(&self) -> usize {
        self.agenda().count()
    }

    /// Tells every hold that it is lost, but does not forget it: it is still to be given back.
    pub(crate) fn lose_all(&self, cause: LostCause) -> Vec<Arc<Hold>> {
        self.report_unreported();
        let holds = self.agenda().holds();
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

/// Runs for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let watchdog = &core.watchdog;
    let mut rounds = JoinSet::new();
    loop {
        while rounds.try_join_next().is_some() {}
        watchdog.report_unreported();
        let Sorted { renew, verify } = sort_out(&core);
        if !renew.is_empty() {
            rounds.spawn(round::run(Arc::clone(&core), renew));
        }
        if !verify.is_empty() {
            rounds.spawn(self::verify(Arc::clone(&core), verify));
        }
        let pause = watchdog.agenda().go_to_sleep(watchdog.clock.now(), LOOK);
        tokio::select! {
            () = watchdog.wake.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// What is to be done about the holds that came due.
struct Sorted {
    renew: Vec<Message>,
    verify: Vec<Arc<Hold>>,
}

fn sort_out(core: &Core) -> Sorted {
    let watchdog = &core.watchdog;
    let came = watchdog.agenda().take_due(watchdog.clock.now());
    let alike = |lease, hold: &Hold| (lease, core.store.group(&hold.key));
    let (mut cohorts, mut singly, mut verify) = (Vec::new(), Vec::new(), Vec::new());
    for came in came {
        match came {
            Came::Cohort(cohort) => {
                cohorts.push((alike(cohort.shared.lease, &cohort.holds[0]), cohort));
            }
            Came::BeyondMaxHold(hold) => report(&hold, LostCause::MaxHold),
            Came::Hold(hold, duty) => match duty {
                Duty::Lose(cause) => watchdog.lose(&hold, cause),
                Duty::GiveBack => core.queues.end_retention(hold),
                Duty::Renew(lease) => singly.push((alike(lease, &hold), hold)),
                Duty::LetRunOut { suspect: true } => verify.push(hold),
                Duty::Wait | Duty::LetRunOut { suspect: false } => {}
            },
        }
    }
    Sorted {
        renew: round::messages(cohorts, singly),
        verify,
    }
}

/// Looks whether holds that are not renewed are still there.
async fn verify(core: Arc<Core>, holds: Vec<Arc<Hold>>) {
    for (done, hold) in holds.iter().enumerate() {
        match core
            .store
            .inspect(&hold.key, core.options.response_timeout)
            .await
        {
            Ok(Some(entry)) if entry.count > 0 && entry.owner == hold.owner.to_string() => {}
            Ok(_) => core.watchdog.lose(hold, LostCause::Removed),
            Err(error) if error.foreign => core.watchdog.lose(hold, LostCause::Removed),
            Err(_) => {
                let later = core.clock.now() + LOOK;
                return core.watchdog.agenda().verify(&holds[done..], later);
            }
        }
    }
}

/// One look at what is due, and all that follows from it.
#[cfg(all(test, shuttle))]
pub(crate) async fn look(core: &Arc<Core>) {
    for message in sort_out(core).renew {
        round::renew(core, message).await;
    }
}
