//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and tells the hold when it is lost.

mod agenda;
mod line;

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use self::agenda::Agenda;
use crate::{
    clock::ClientClock,
    core::Core,
    error::LostCause,
    hold::{Duty, Hold},
    lease::Time,
    store::{Renewal, Renewed},
    sync::{Mutex, MutexGuard, Notify, PoisonError},
};
#[cfg(feature = "redis")]
use crate::{key::Key, store::Which};

/// How many holds are renewed by one request. A server that tracks keys goes through all the keys of a
/// script at each read in it, so a renewal costs it 3.3 µs in a batch of 16, and 25 µs in one of 256.
const BATCH: usize = 16;
/// How many requests of one round are under way at once, as long as the server answers soon: a server
/// that is kept busy by more lets everybody else wait, and so many requests take memory.
const AT_ONCE: usize = 64;
/// The timer looks at the clock at least this often while there are holds: timers stand still while
/// the machine sleeps, leases do not.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after every hold that may be lost.
pub(crate) struct Watchdog {
    clock: ClientClock,
    agenda: Mutex<Agenda>,
    wake: Notify,
}

impl Watchdog {
    pub(crate) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            agenda: Mutex::default(),
            wake: Notify::new(),
        }
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a hold in charge, or looks anew at when it is due.
    pub(crate) fn track(&self, hold: &Arc<Hold>) {
        let (former, wake) = self.agenda().insert(hold, self.clock.now());
        if let Some(former) = former {
            // The store granted the key to another owner, so the former hold is gone.
            former.lose(LostCause::Removed);
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// Stops looking at a hold, unless it is held: a nested acquire may have entered it just now.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        self.agenda().remove_unless_held(hold);
    }

    /// Looks at the hold of this key at once, if there is one.
    #[cfg(feature = "redis")]
    pub(crate) fn suspect(&self, key: &Key) {
        self.look(|agenda, now| {
            if let Some(hold) = agenda.hold(key).filter(|hold| !hold.is_echo()) {
                agenda.suspect(&hold, now);
            }
        });
    }

    /// Looks at all holds of these keys at once.
    #[cfg(feature = "redis")]
    pub(crate) fn suspect_all(&self, which: &Which) {
        self.look(|agenda, now| agenda.suspect_all(which, now));
    }

    #[cfg(feature = "redis")]
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
        if hold.lose(cause) {
            tracing::warn!(key = %hold.key, owner = %hold.owner, %cause, "lock lost");
        }
        self.forget(hold);
    }

    /// Tells every hold that it is lost, but does not forget it: it is still to be given back.
    pub(crate) fn lose_all(&self, cause: LostCause) -> Vec<Arc<Hold>> {
        let holds = self.agenda().holds();
        for hold in &holds {
            hold.lose(cause);
        }
        holds
    }
}

/// Runs for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let watchdog = &core.watchdog;
    let mut rounds = JoinSet::new();
    loop {
        while rounds.try_join_next().is_some() {}
        let Sorted { renew, verify } = sort_out(&core);
        if !renew.is_empty() {
            rounds.spawn(renew_all(Arc::clone(&core), renew));
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
#[derive(Default)]
struct Sorted {
    /// Those of the shortest lease first.
    renew: Vec<Batch>,
    verify: Vec<Arc<Hold>>,
}

/// Holds of one lease each, because a request is bound by its shortest, and of one group.
struct Batch {
    alike: (Duration, u16),
    holds: Vec<Arc<Hold>>,
}

fn sort_out(core: &Core) -> Sorted {
    let watchdog = &core.watchdog;
    let due = watchdog.agenda().take_due(watchdog.clock.now());
    let (mut renew, mut verify) = (Vec::new(), Vec::new());
    for (hold, duty) in due {
        match duty {
            Duty::Lose => watchdog.lose(&hold, LostCause::Expired),
            Duty::Renew(lease) => renew.push(((lease, core.store.group(&hold.key)), hold)),
            Duty::LetRunOut { suspect: true } => verify.push(hold),
            Duty::Wait | Duty::LetRunOut { suspect: false } => {}
        }
    }
    renew.sort_by_key(|(alike, _)| *alike);
    Sorted {
        renew: batches(renew),
        verify,
    }
}

fn batches(holds: Vec<((Duration, u16), Arc<Hold>)>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::with_capacity(holds.len() / BATCH + 1);
    for (alike, hold) in holds {
        match batches.last_mut() {
            Some(last) if last.alike == alike && last.holds.len() < BATCH => last.holds.push(hold),
            _ => batches.push(Batch {
                alike,
                holds: vec![hold],
            }),
        }
    }
    batches
}

/// One round. A few requests are under way at once; where the answers take their time, the round does
/// not wait for them: all is sent in half a lease, so that it ends before the last attempts start.
async fn renew_all(core: Arc<Core>, batches: Vec<Batch>) {
    let started = Instant::now();
    let shortest = batches.first().map(|batch| batch.alike.0);
    let shortest = shortest.unwrap_or_default();
    let share = shortest / 2 / u32::try_from(batches.len()).unwrap_or(u32::MAX).max(1);
    let mut latest = started;
    let mut requests = JoinSet::new();
    for batch in batches {
        latest += share;
        if requests.len() >= AT_ONCE {
            let _ = timeout_at(latest, requests.join_next()).await;
            while requests.try_join_next().is_some() {}
        }
        requests.spawn(renew(Arc::clone(&core), batch.holds));
    }
    requests.join_all().await;
}

async fn renew(core: Arc<Core>, mut holds: Vec<Arc<Hold>>) {
    let now = core.clock.now();
    let mut batch: Vec<Renewal> = Vec::with_capacity(holds.len());
    let (mut left, mut lease) = (Duration::MAX, Duration::MAX);
    holds.retain(|hold| {
        let Some((renewal, confirmed)) = hold.begin_renewal(now) else {
            return false;
        };
        batch.push(renewal);
        left = left.min(hold.valid_until().since(now));
        lease = lease.min(confirmed);
        true
    });
    if holds.is_empty() {
        return;
    }
    // A late answer is as good as an early one while the lease lasts; the next attempt does not
    // wait for it.
    let outcome = core.store.renew(&batch, left, lease / 3).await;
    for hold in &holds {
        hold.end_renewal();
    }
    match outcome {
        Ok(answer) => answered(&core.watchdog, &holds, &batch, &answer, now),
        Err(error) => {
            tracing::warn!(holds = holds.len(), %error, "renewal failed, it will be tried again");
        }
    }
}

fn answered(
    watchdog: &Watchdog,
    holds: &[Arc<Hold>],
    batch: &[Renewal],
    answer: &Renewed,
    sent: Time,
) {
    let now = watchdog.clock.now();
    let mut gone = Vec::new();
    {
        let mut agenda = watchdog.agenda();
        agenda.line.moved(sent, now);
        for ((hold, renewal), held) in holds.iter().zip(batch).zip(&answer.held) {
            if *held {
                agenda.renewed(hold, answer.sent_at, renewal.lease, now);
            } else {
                gone.push(hold);
            }
        }
    }
    for hold in gone {
        watchdog.lose(hold, LostCause::Removed);
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
            Ok(Some(entry)) if entry.owner == hold.owner.to_string() => {}
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
    for batch in sort_out(core).renew {
        renew(Arc::clone(core), batch.holds).await;
    }
}
