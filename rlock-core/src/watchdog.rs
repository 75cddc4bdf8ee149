//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and tells the hold when it is lost.

mod agenda;
mod cohort;
mod line;

use std::{sync::Arc, time::Duration};

#[cfg(feature = "redis")]
use futures_util::future::join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use self::{
    agenda::{Agenda, Came},
    cohort::Cohort,
};
use crate::{
    clock::ClientClock,
    core::Core,
    error::LostCause,
    hold::{Duty, Hold},
    lease::Time,
    store::{Kept, Renewal, Renewed, StoreError},
    sync::{Mutex, MutexGuard, Notify, PoisonError},
};
#[cfg(feature = "redis")]
use crate::{
    key::Key,
    store::{Servers, Which},
};

/// How many holds are renewed by one request. A server that tracks keys goes through all the keys of a
/// script at each read in it, so a renewal costs it 3.3 µs in a batch of 16, and 25 µs in one of 256.
const BATCH: usize = 16;
/// How many requests of one round are under way at once, as long as the server answers soon: a server
/// that is kept busy by more lets everybody else wait, and so many requests take memory.
const AT_ONCE: usize = 64;
/// The timer looks at the clock at least this often while there are holds: timers stand still while
/// the machine sleeps, leases do not.
const LOOK: Duration = Duration::from_secs(1);

/// How long a hold's next change may have to wait for the mending of it.
#[cfg(feature = "redis")]
const MEND: Duration = Duration::from_millis(100);

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

/// What is renewed by one request: holds of one lease, because a request is bound by its shortest, and of
/// one group.
struct Batch {
    lease: Duration,
    what: What,
}

enum What {
    Holds(Vec<Arc<Hold>>),
    Cohort(Arc<Cohort>),
}

/// What holds have in common that are renewed by one request: their lease, and their group at the store.
type Alike = (Duration, u16);

fn sort_out(core: &Core) -> Sorted {
    let watchdog = &core.watchdog;
    let came = watchdog.agenda().take_due(watchdog.clock.now());
    let (mut renew, mut singly, mut verify) = (Vec::new(), Vec::new(), Vec::new());
    for came in came {
        match came {
            Came::Cohort(cohort) => renew.push(Batch {
                lease: cohort.shared.lease,
                what: What::Cohort(cohort),
            }),
            Came::Hold(hold, duty) => match duty {
                Duty::Lose => watchdog.lose(&hold, LostCause::Expired),
                Duty::Renew(lease) => singly.push(((lease, core.store.group(&hold.key)), hold)),
                Duty::LetRunOut { suspect: true } => verify.push(hold),
                Duty::Wait | Duty::LetRunOut { suspect: false } => {}
            },
        }
    }
    singly.sort_by_key(|(alike, _)| *alike);
    renew.extend(batches(singly));
    renew.sort_by_key(|batch| batch.lease);
    Sorted { renew, verify }
}

fn batches(holds: Vec<(Alike, Arc<Hold>)>) -> Vec<Batch> {
    let mut batches: Vec<(Alike, Vec<Arc<Hold>>)> = Vec::with_capacity(holds.len() / BATCH + 1);
    for (alike, hold) in holds {
        match batches.last_mut() {
            Some((last, holds)) if *last == alike && holds.len() < BATCH => holds.push(hold),
            _ => batches.push((alike, vec![hold])),
        }
    }
    let batch = |((lease, _), holds): (Alike, _)| Batch {
        lease,
        what: What::Holds(holds),
    };
    batches.into_iter().map(batch).collect()
}

/// One round. A few requests are under way at once; where the answers take their time, the round does
/// not wait for them: all is sent in half a lease, so that it ends before the last attempts start.
async fn renew_all(core: Arc<Core>, batches: Vec<Batch>) {
    let started = Instant::now();
    let shortest = batches.first().map(|batch| batch.lease);
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
        requests.spawn(renew(Arc::clone(&core), batch.what));
    }
    requests.join_all().await;
}

async fn renew(core: Arc<Core>, what: What) {
    match what {
        What::Holds(holds) => renew_singly(&core, holds).await,
        What::Cohort(cohort) => renew_cohort(&core, &cohort).await,
    }
}

async fn renew_cohort(core: &Core, cohort: &Cohort) {
    let (watchdog, now) = (&core.watchdog, core.clock.now());
    let Cohort {
        shared,
        holds,
        renewals,
        ..
    } = cohort;
    let Some(left) = cohort.begin_renewal(now) else {
        if watchdog.agenda().part(shared, now) {
            watchdog.wake.notify_one();
        }
        return;
    };
    let outcome = core.store.renew(renewals, left, shared.lease / 3).await;
    cohort.end_renewal();
    match outcome {
        Ok(answer) => {
            let all = answer.kept.iter().all(|kept| *kept == Kept::Yes);
            {
                let now_answered = watchdog.clock.now();
                let mut agenda = watchdog.agenda();
                if all && agenda.cohort_renewed(cohort, answer.sent_at, now_answered) {
                    agenda.line.moved(now, now_answered);
                    return;
                }
                agenda.part(shared, shared.due());
            }
            heard(core, holds, renewals, &answer, now).await;
        }
        Err(error) => failed(holds, &error),
    }
}

/// Each hold is told by itself.
#[cfg_attr(
    not(feature = "redis"),
    expect(clippy::unused_async, reason = "servers need mending")
)]
async fn heard(core: &Core, holds: &[Arc<Hold>], batch: &[Renewal], answer: &Renewed, sent: Time) {
    answered(&core.watchdog, holds, batch, answer, sent);
    #[cfg(feature = "redis")]
    mend_all(core, holds, answer).await;
}

fn failed(holds: &[Arc<Hold>], error: &StoreError) {
    tracing::warn!(holds = holds.len(), %error, "renewal failed, it will be tried again");
}

async fn renew_singly(core: &Core, mut holds: Vec<Arc<Hold>>) {
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
        Ok(answer) => heard(core, &holds, &batch, &answer, now).await,
        Err(error) => failed(&holds, &error),
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
        for ((hold, renewal), kept) in holds.iter().zip(batch).zip(&answer.kept) {
            match kept {
                Kept::No => gone.push(hold),
                // It will be tried again.
                #[cfg(feature = "redis")]
                Kept::Unknown => {}
                _ => agenda.renewed(hold, answer.sent_at, renewal.lease, now),
            }
        }
        if gone.is_empty() {
            agenda.join(holds, batch, answer.sent_at);
        }
    }
    for hold in gone {
        watchdog.lose(hold, LostCause::Removed);
    }
}

/// Has the servers that do not know of a hold which others renewed know of it again.
#[cfg(feature = "redis")]
async fn mend_all(core: &Core, holds: &[Arc<Hold>], answer: &Renewed) {
    let mend = |(hold, kept): (&Arc<Hold>, &Kept)| match *kept {
        Kept::NotOn(servers) => Some(mend(core, Arc::clone(hold), servers)),
        _ => None,
    };
    join_all(holds.iter().zip(&answer.kept).filter_map(mend)).await;
}

#[cfg(feature = "redis")]
async fn mend(core: &Core, hold: Arc<Hold>, servers: Servers) {
    let patience = MEND.min(hold.lease() / 8);
    // Whoever changes it now tells all servers anyway.
    let Ok(_changing) = hold.changing.try_lock() else {
        return;
    };
    if let Some(mending) = hold.mending(core.counts_entries()) {
        core.store.mend(mending, servers, patience).await;
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
    for batch in sort_out(core).renew {
        renew(Arc::clone(core), batch.what).await;
    }
}
