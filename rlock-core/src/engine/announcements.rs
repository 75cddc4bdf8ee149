//! Which holds a client announces to all clients of the store, and who listens for announcements of a key.
//!
//! An announcement is the description of a hold. The background of the holder's client sends it, and the store carries
//! the messages and keeps none of them. So a listener also learns that it may have missed one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak},
};

use futures_util::future::join_all;
use rlock_proto::{key::Key, store::KeyFilter};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    backoff::Backoff,
    engine::{
        core::Core,
        hold::HoldRecord,
        messages::{Message, written},
        queries::describe,
    },
    info::LockInfo,
    store::StoreError,
};

/// How many clients get the message at once.
const AT_ONCE: usize = 64;

/// Listens for announcements of a key.
pub(crate) trait HoldListener: Send + Sync {
    /// Handles the announcement of a hold.
    fn hear(&self, info: &LockInfo);

    /// Handles that announcements may have been missed.
    fn missed(&self);
}

#[derive(Default)]
pub(crate) struct Announcements {
    /// The databases of this client's locks.
    pub(super) databases: OnceLock<String>,
    listeners: Mutex<Vec<(Key, Weak<dyn HoldListener>)>>,
    /// The holds that are not announced yet.
    due: Mutex<VecDeque<Arc<HoldRecord>>>,
    wake: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Announcements {
    /// Passes announcements of this key on to the listener until it is dropped.
    pub(crate) fn listen<L: HoldListener + 'static>(&self, key: &Key, listener: &Arc<L>) {
        let listener: Weak<L> = Arc::downgrade(listener);
        let mut listeners = lock(&self.listeners);
        listeners.retain(|(_, listener)| listener.strong_count() > 0);
        listeners.push((key.clone(), listener));
    }

    /// Handles the announcement of another client. Those from other databases arrive, too, because channels have none.
    pub(super) fn hear(&self, databases: &str, info: &LockInfo) {
        if self.databases.get().is_some_and(|own| own == databases) {
            self.pass_on(info);
        }
    }

    fn pass_on(&self, info: &LockInfo) {
        for listener in self.listeners(|key| key.as_str() == info.key) {
            listener.hear(info);
        }
    }

    /// Tells the listeners of these keys that messages may have been missed.
    pub(super) fn missed(&self, filter: &KeyFilter) {
        for listener in self.listeners(|key| filter.matches(key)) {
            listener.missed();
        }
    }

    /// Returns the listeners of these keys, which are told outside of the mutex, because that wakes tasks.
    fn listeners(&self, is_of: impl Fn(&Key) -> bool) -> Vec<Arc<dyn HoldListener>> {
        let listeners = lock(&self.listeners);
        let found = listeners.iter().filter(|(key, _)| is_of(key));
        found
            .filter_map(|(_, listener)| listener.upgrade())
            .collect()
    }

    /// Makes the background announce this hold.
    pub(super) fn announce(&self, hold: &Arc<HoldRecord>) {
        let mut due = lock(&self.due);
        if !due.iter().any(|other| Arc::ptr_eq(other, hold)) {
            due.push_back(Arc::clone(hold));
        }
        drop(due);
        self.wake.notify_one();
    }
}

/// Announces holds for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    static WARNED: Once = Once::new();
    let announcements = &core.shell.announcements;
    let mut backoff = Backoff::default();
    loop {
        let Some(hold) = lock(&announcements.due).pop_front() else {
            announcements.wake.notified().await;
            continue;
        };
        match announce(&core, &hold).await {
            Ok(()) => backoff = Backoff::default(),
            // Otherwise the listeners keep the holder before it.
            Err(error) if error.transient => {
                announcements.announce(&hold);
                tokio::time::sleep(backoff.next()).await;
            }
            Err(error) => WARNED.call_once(|| {
                tracing::warn!(
                    key = %hold.key, %error,
                    "could not announce a holder: observers learn of it when they ask"
                );
            }),
        }
    }
}

async fn announce(core: &Core, hold: &HoldRecord) -> Result<(), StoreError> {
    let is_it = |info: &LockInfo| info.token == Some(hold.token);
    // A hold that has ended is not announced.
    let Some(info) = describe(core, &hold.key).into_iter().find(is_it) else {
        return Ok(());
    };
    let (limit, message) = (
        core.options.response_timeout,
        Message::Announcement(core.store.databases(), Box::new(info.clone())),
    );
    core.shell.announcements.pass_on(&info);
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
