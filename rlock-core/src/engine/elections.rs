//! Elections: what leaders announce, and what observers know of them.
//!
//! The background of a leader's client sends each new term, and each new value, to all clients of the store. The store
//! carries the messages and keeps none of them. A client that may have missed one asks for the leader again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError},
    time::SystemTime,
};

use futures_util::future::join_all;
use rlock_proto::{key::Key, options::Site, store::KeyFilter};
use tokio::sync::{Notify, SetOnce, watch};
use uuid::Uuid;

use crate::{
    backoff::Backoff,
    engine::{
        core::Core,
        hold::HoldRecord,
        messages::{Message, written},
        queries::describe,
    },
    info::{Holder, LockInfo},
    metrics,
    store::StoreError,
};

/// How many clients get the message at once.
const AT_ONCE: usize = 64;

/// The part of a hold that only leaders have.
pub(crate) struct Office {
    /// The announced value, and how many there have been in this term.
    announced: Mutex<(Option<String>, u32)>,
    /// Set when another client has asked the leader to resign.
    pub(crate) resign: SetOnce<()>,
    /// Counts the leadership in the metrics until the hold ends or is lost.
    counted: Mutex<Option<metrics::Leads>>,
}

impl Office {
    pub(crate) fn new(site: Site) -> Self {
        Self {
            announced: Mutex::default(),
            resign: SetOnce::new(),
            counted: Mutex::new(Some(metrics::Leads::begin(site))),
        }
    }

    pub(crate) fn announce(&self, value: String) {
        let mut announced = lock(&self.announced);
        *announced = (
            Some(value).filter(|value| !value.is_empty()),
            announced.1 + 1,
        );
    }

    /// Adds what is announced to the description of the hold.
    pub(crate) fn describe(&self, holder: &mut Holder) {
        (holder.value, holder.values) = lock(&self.announced).clone();
    }

    pub(crate) fn ends(&self) {
        // Dropped at the end, not under the mutex, because that calls the recorder.
        let _counted = lock(&self.counted).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this client knows of an election that it observes.
#[derive(Clone, Default)]
pub(crate) struct Observed {
    /// The latest term, as its leader described it, and when that was.
    pub(crate) latest: Option<(LockInfo, SystemTime)>,
    /// How often messages may have been missed.
    pub(crate) missed: u64,
}

/// The order of descriptions of leaders: by term, and within a term by the number of values that it has announced.
pub(crate) type Version = (u64, u32);

fn version(info: &LockInfo) -> Option<Version> {
    let values = info.holder.as_ref().map_or(0, |holder| holder.values);
    info.token.map(|term| (term, values))
}

impl Observed {
    pub(crate) fn version(&self) -> Option<Version> {
        version(&self.latest.as_ref()?.0)
    }

    /// Handles an announcement. Replaces the latest description if this one is newer. If its term is smaller, the
    /// announcement may be late, the latest term may be forged, or the store may have lost it, so the observers ask who
    /// leads. Returns whether the observers have to act.
    fn hear(&mut self, info: LockInfo) -> bool {
        let (latest, heard) = (self.version(), version(&info));
        if heard > latest {
            self.latest = Some((info, SystemTime::now()));
        } else if heard
            .zip(latest)
            .is_some_and(|((term, _), (latest, _))| term < latest)
        {
            self.missed += 1;
        } else {
            return false;
        }
        true
    }

    /// Replaces the latest description with the reply of the lock's holder, even if its term is smaller, unless a newer
    /// announcement has arrived since the holder was asked. Returns whether the reply differs.
    fn believe(&mut self, info: LockInfo, latest: Option<Version>) -> bool {
        let (present, told) = (self.version(), version(&info));
        let is_news = told.is_some() && told != present && (present == latest || told > present);
        if is_news {
            self.latest = Some((info, SystemTime::now()));
        }
        is_news
    }
}

#[derive(Default)]
pub(crate) struct Elections {
    /// The databases of this client's locks.
    pub(super) databases: OnceLock<String>,
    observed: Mutex<HashMap<Key, watch::Sender<Observed>>>,
    /// The leaders whose term or value is not announced yet.
    due: Mutex<VecDeque<Arc<HoldRecord>>>,
    wake: Notify,
}

impl Elections {
    /// Follows an election until the receiver is dropped.
    pub(crate) fn observe(&self, key: &Key) -> watch::Receiver<Observed> {
        let mut observed = lock(&self.observed);
        observed.retain(|_, sender| sender.receiver_count() > 0);
        observed.entry(key.clone()).or_default().subscribe()
    }

    /// Handles an announcement. Those from other databases arrive, too, because channels have none.
    pub(crate) fn hear(&self, databases: &str, info: LockInfo) {
        if self.databases.get().is_some_and(|own| own == databases) {
            self.update(info, Observed::hear);
        }
    }

    /// Handles the reply of the lock's holder, which was asked when this was the latest description.
    pub(crate) fn believe(&self, info: LockInfo, latest: Option<Version>) {
        self.update(info, |observed, info| observed.believe(info, latest));
    }

    fn update(&self, info: LockInfo, update: impl FnOnce(&mut Observed, LockInfo) -> bool) {
        let Ok(key) = Key::parse(&info.key) else {
            return;
        };
        let sender = lock(&self.observed).get(&key).cloned();
        if let Some(sender) = sender {
            sender.send_if_modified(|observed| update(observed, info));
        }
    }

    /// Makes the observers of these keys ask who leads, because messages may have been missed.
    pub(crate) fn missed(&self, filter: &KeyFilter) {
        let mut observed = Vec::new();
        for (key, sender) in &*lock(&self.observed) {
            if filter.matches(key) {
                observed.push(sender.clone());
            }
        }
        // Not under the mutex, because this wakes tasks.
        for sender in observed {
            sender.send_modify(|observed| observed.missed += 1);
        }
    }

    /// Makes the background announce this leader's term and value.
    pub(crate) fn announce(&self, hold: &Arc<HoldRecord>) {
        let mut due = lock(&self.due);
        if !due.iter().any(|other| Arc::ptr_eq(other, hold)) {
            due.push_back(Arc::clone(hold));
        }
        drop(due);
        self.wake.notify_one();
    }
}

/// Announces leaders, for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    static WARNED: Once = Once::new();
    let elections = &core.shell.elections;
    let mut backoff = Backoff::default();
    loop {
        let Some(hold) = lock(&elections.due).pop_front() else {
            elections.wake.notified().await;
            continue;
        };
        match announce(&core, &hold).await {
            Ok(()) => backoff = Backoff::default(),
            // Otherwise the observers keep the leader before it.
            Err(error) if error.transient => {
                elections.announce(&hold);
                tokio::time::sleep(backoff.next()).await;
            }
            Err(error) => WARNED.call_once(|| {
                tracing::warn!(
                    key = %hold.key, %error,
                    "could not announce the leader: observers learn of it when they ask"
                );
            }),
        }
    }
}

async fn announce(core: &Core, hold: &HoldRecord) -> Result<(), StoreError> {
    let is_it = |info: &LockInfo| info.token == Some(hold.token);
    // A term that has ended is not announced.
    let Some(info) = describe(core, &hold.key).into_iter().find(is_it) else {
        return Ok(());
    };
    let (limit, message) = (
        core.options.response_timeout,
        Message::Leads(core.store.databases(), Box::new(info.clone())),
    );
    core.shell.elections.update(info, Observed::hear);
    let message = written(&message);
    let mut clients = core.store.clients(limit).await?;
    clients.retain(|client| *client != core.id);
    let mut outcome = Ok(());
    for clients in clients.chunks(AT_ONCE) {
        let tell = |client: &Uuid| core.store.publish(*client, message.clone(), limit);
        let told = join_all(clients.iter().map(tell)).await;
        // Those behind one that cannot be told are told, too.
        for told in told {
            outcome = outcome.and(told.map(drop));
        }
    }
    outcome
}
