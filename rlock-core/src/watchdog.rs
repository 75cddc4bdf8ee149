//! The watchdog: one timer for all holds. It renews leases in batches, tries again before a lease
//! ends, and tells the hold when it is lost.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet};

use crate::{
    core::Core,
    error::LostCause,
    hold::Hold,
    key::Key,
    lease::{Time, renewal_attempt},
    store::Renewal,
};

/// How many holds are renewed by one request: large enough to amortise the round trip, small enough
/// to block a single-threaded server for well under a millisecond.
const BATCH: usize = 256;
/// The timer looks at the clock at least this often while there are holds: timers stand still while
/// the machine sleeps, leases do not.
const LOOK: Duration = Duration::from_secs(1);

/// Every hold that may be lost, by when it is to be looked at.
#[derive(Default)]
pub(crate) struct Watchdog {
    table: Mutex<Table>,
    wake: Notify,
}

struct Table {
    tracked: HashMap<Key, Tracked>,
    agenda: BTreeMap<(Time, u64), Key>,
    next_id: u64,
    /// Until when the timer sleeps at most.
    sleeps_until: Time,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            tracked: HashMap::new(),
            agenda: BTreeMap::new(),
            next_id: 0,
            sleeps_until: Time::NEVER,
        }
    }
}

struct Tracked {
    hold: Arc<Hold>,
    due: Time,
    id: u64,
    /// Somebody else changed the lock, so it is to be looked at even if it is not renewed.
    suspect: bool,
}

impl Watchdog {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a hold in charge, or looks anew at when it is due.
    pub(crate) fn track(&self, hold: &Arc<Hold>) {
        let due = hold.due();
        let mut table = self.table();
        let former = table.insert(hold, due);
        let wake = due < table.sleeps_until;
        drop(table);
        if let Some(former) = former {
            // The store granted the key to another owner, so the former hold is gone.
            former.lose(LostCause::Removed);
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// Stops renewing a hold.
    pub(crate) fn forget(&self, hold: &Arc<Hold>) {
        let mut table = self.table();
        if table.tracks(hold) {
            table.remove(&hold.key);
        }
    }

    /// Looks at a hold, or at all of them, at once.
    #[cfg(feature = "redis")]
    pub(crate) fn hear(&self, news: &crate::store::News) {
        use crate::store::News;

        let now = Time::now();
        let mut table = self.table();
        match news {
            News::Changed(key) => table.suspect(key, now),
            News::AllChanged => {
                let keys: Vec<Key> = table.tracked.keys().cloned().collect();
                for key in keys {
                    table.suspect(&key, now);
                }
            }
        }
        let wake = table
            .agenda
            .first_key_value()
            .is_some_and(|((due, _), _)| *due <= now);
        drop(table);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Puts a hold down for its next renewal, unless it was released meanwhile.
    fn retrack(&self, hold: &Arc<Hold>) {
        let due = hold.due();
        let mut table = self.table();
        if table.tracks(hold) {
            table.reschedule(&hold.key, due);
        }
    }

    /// Tells a hold that it is lost.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, cause: LostCause) {
        self.forget(hold);
        if hold.lose(cause) {
            tracing::warn!(key = %hold.key, owner = %hold.owner, %cause, "lock lost");
        }
    }

    /// Notes until when the timer sleeps; `None`: until it is woken.
    fn go_to_sleep(&self) -> Option<Duration> {
        let now = Time::now();
        let mut table = self.table();
        let next = table.agenda.first_key_value().map(|((due, _), _)| *due);
        table.sleeps_until = next.map_or(Time::NEVER, |due| due.min(now + LOOK));
        next.map(|_| table.sleeps_until.since(now))
    }

    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.table()
            .tracked
            .values()
            .map(|tracked| Arc::clone(&tracked.hold))
            .collect()
    }
}

impl Table {
    fn tracks(&self, hold: &Arc<Hold>) -> bool {
        self.tracked
            .get(&hold.key)
            .is_some_and(|tracked| Arc::ptr_eq(&tracked.hold, hold))
    }

    /// Answers the other hold that stood under the same key, if there was one.
    fn insert(&mut self, hold: &Arc<Hold>, due: Time) -> Option<Arc<Hold>> {
        let former = self.remove(&hold.key);
        let id = self.next_id;
        self.next_id += 1;
        self.agenda.insert((due, id), hold.key.clone());
        self.tracked.insert(
            hold.key.clone(),
            Tracked {
                hold: Arc::clone(hold),
                due,
                id,
                suspect: false,
            },
        );
        former.filter(|former| !Arc::ptr_eq(former, hold))
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<Hold>> {
        let tracked = self.tracked.remove(key)?;
        self.agenda.remove(&(tracked.due, tracked.id));
        Some(tracked.hold)
    }

    fn reschedule(&mut self, key: &Key, due: Time) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            self.agenda.remove(&(tracked.due, tracked.id));
            tracked.due = due;
            self.agenda.insert((due, tracked.id), key.clone());
        }
    }

    #[cfg(feature = "redis")]
    fn suspect(&mut self, key: &Key, now: Time) {
        self.reschedule(key, now);
        if let Some(tracked) = self.tracked.get_mut(key) {
            tracked.suspect = true;
        }
    }

    /// The holds that are due; each is put down for its next attempt, should this one fail.
    fn take_due(&mut self, now: Time) -> Vec<(Arc<Hold>, bool)> {
        let mut due = Vec::new();
        while let Some(((at, _), key)) = self.agenda.first_key_value() {
            if *at > now {
                break;
            }
            let key = key.clone();
            let Some(tracked) = self.tracked.get_mut(&key) else {
                self.agenda.pop_first();
                continue;
            };
            let hold = Arc::clone(&tracked.hold);
            let suspect = std::mem::take(&mut tracked.suspect);
            let next = now + renewal_attempt(hold.lease()).max(Duration::from_micros(100));
            self.reschedule(
                &key,
                next.min(hold.valid_until())
                    .max(now + Duration::from_nanos(1)),
            );
            due.push((hold, suspect));
        }
        due
    }
}

/// Runs for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let watchdog = &core.watchdog;
    let mut requests = JoinSet::new();
    loop {
        while requests.try_join_next().is_some() {}
        let Sorted { renew, verify } = sort_out(watchdog);
        for batch in renew.chunks(BATCH) {
            requests.spawn(self::renew(Arc::clone(&core), batch.to_vec()));
        }
        if !verify.is_empty() {
            requests.spawn(self::verify(Arc::clone(&core), verify));
        }
        let pause = watchdog.go_to_sleep();
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
    renew: Vec<Arc<Hold>>,
    verify: Vec<Arc<Hold>>,
}

fn sort_out(watchdog: &Watchdog) -> Sorted {
    let now = Time::now();
    let due = watchdog.table().take_due(now);
    let mut sorted = Sorted::default();
    for (hold, suspect) in due {
        if now >= hold.valid_until() {
            watchdog.lose(&hold, LostCause::Expired);
        } else if hold.wants_renewal() {
            sorted.renew.push(hold);
        } else {
            // Its lease runs out unless something changes; look again then.
            watchdog.retrack(&hold);
            if suspect {
                sorted.verify.push(hold);
            }
        }
    }
    sorted
}

async fn renew(core: Arc<Core>, holds: Vec<Arc<Hold>>) {
    let batch: Vec<Renewal> = holds
        .iter()
        .map(|hold| Renewal {
            key: hold.key.clone(),
            owner: hold.owner,
            lease: hold.lease(),
        })
        .collect();
    let shortest = batch
        .iter()
        .map(|renewal| renewal.lease)
        .min()
        .unwrap_or_default();
    let timeout = renewal_attempt(shortest).min(core.options.response_timeout);
    match core.store.renew(&batch, timeout).await {
        Ok(answer) => {
            for ((hold, renewal), held) in holds.iter().zip(&batch).zip(answer.held) {
                if held {
                    hold.renewed(answer.sent_at, renewal.lease);
                    core.watchdog.retrack(hold);
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
    for hold in holds {
        let answer = core
            .store
            .inspect(&hold.key, core.options.response_timeout)
            .await;
        // Without an answer the lease tells; the next connection has all holds looked at again.
        let Ok(entry) = answer else { return };
        if entry.is_none_or(|entry| entry.owner != hold.owner.to_string()) {
            core.watchdog.lose(&hold, LostCause::Removed);
        }
    }
}
