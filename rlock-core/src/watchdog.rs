//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and tells the hold when it is lost.

mod agenda;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet};

use self::agenda::Agenda;
#[cfg(feature = "redis")]
use crate::key::Key;
use crate::{core::Core, error::LostCause, hold::Hold, lease::Time, store::Renewal};

/// How many holds are renewed by one request. A server that tracks keys goes through all the keys of a
/// script at each read in it, so a renewal costs it 3.3 µs in a batch of 16, and 25 µs in one of 256.
const BATCH: usize = 16;
/// The timer looks at the clock at least this often while there are holds: timers stand still while
/// the machine sleeps, leases do not.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after every hold that may be lost.
#[derive(Default)]
pub(crate) struct Watchdog {
    agenda: Mutex<Agenda>,
    wake: Notify,
}

impl Watchdog {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a hold in charge, or looks anew at when it is due.
    pub(crate) fn track(&self, hold: &Arc<Hold>) {
        let (former, wake) = self.agenda().insert(hold);
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
            if !agenda.is_echo(key) {
                agenda.suspect(key, now);
            }
        });
    }

    /// Looks at all holds at once.
    #[cfg(feature = "redis")]
    pub(crate) fn suspect_all(&self) {
        self.look(Agenda::suspect_all);
    }

    #[cfg(feature = "redis")]
    fn look(&self, put_down: impl FnOnce(&mut Agenda, Time)) {
        let now = Time::now();
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
    let mut requests = JoinSet::new();
    loop {
        while requests.try_join_next().is_some() {}
        let Sorted { renew, verify } = sort_out(watchdog);
        for batch in renew {
            requests.spawn(self::renew(Arc::clone(&core), batch));
        }
        if !verify.is_empty() {
            requests.spawn(self::verify(Arc::clone(&core), verify));
        }
        let pause = watchdog.agenda().go_to_sleep(LOOK);
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
    /// In batches of one lease each, because a batch is bound by its shortest.
    renew: Vec<Vec<Arc<Hold>>>,
    verify: Vec<Arc<Hold>>,
}

fn sort_out(watchdog: &Watchdog) -> Sorted {
    let now = Time::now();
    let due = watchdog.agenda().take_due(now);
    let (mut renew, mut verify) = (Vec::new(), Vec::new());
    for (hold, suspect) in due {
        if now >= hold.valid_until() {
            watchdog.lose(&hold, LostCause::Expired);
        } else if hold.wants_renewal() {
            renew.push((hold.lease(), hold));
        } else {
            // Its lease runs out unless something changes; look again then.
            watchdog.agenda().retrack(&hold);
            if suspect {
                verify.push(hold);
            }
        }
    }
    renew.sort_by_key(|(lease, _)| *lease);
    let renew = renew
        .chunk_by(|(one, _), (other, _)| one == other)
        .flat_map(|same| same.chunks(BATCH))
        .map(|batch| batch.iter().map(|(_, hold)| Arc::clone(hold)).collect())
        .collect();
    Sorted { renew, verify }
}

async fn renew(core: Arc<Core>, holds: Vec<Arc<Hold>>) {
    let renewal = |hold: &Arc<Hold>| {
        hold.begin_renewal();
        Renewal {
            key: hold.key.clone(),
            owner: hold.owner,
            lease: hold.lease(),
        }
    };
    let batch: Vec<Renewal> = holds.iter().map(renewal).collect();
    // A late answer is as good as an early one while the lease lasts; the next attempt does not
    // wait for it.
    let now = Time::now();
    let left = holds
        .iter()
        .map(|hold| hold.valid_until().since(now))
        .min()
        .unwrap_or_default();
    let lease = holds
        .iter()
        .map(|hold| hold.confirmed_lease())
        .min()
        .unwrap_or_default();
    let outcome = core.store.renew(&batch, left, lease / 3).await;
    for hold in &holds {
        hold.end_renewal();
    }
    match outcome {
        Ok(answer) => {
            for ((hold, renewal), held) in holds.iter().zip(&batch).zip(answer.held) {
                if held {
                    hold.renewed(answer.sent_at, renewal.lease);
                    core.watchdog.agenda().retrack(hold);
                } else {
                    core.watchdog.lose(hold, LostCause::Removed);
                }
            }
        }
        Err(error) => {
            tracing::warn!(holds = holds.len(), %error, "renewal failed, it will be tried again");
        }
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
                let later = Time::now() + LOOK;
                return core.watchdog.agenda().verify(&holds[done..], later);
            }
        }
    }
}
