//! Which holds a client announces to all clients of the store, and who listens for announcements of a key.
//!
//! An announcement is the description of a hold. The background of the holder's client sends it, and the store carries
//! the messages and keeps none of them. So a listener also learns that it may have missed one.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use rlock_proto::{key::Key, store::KeyFilter};
use tokio::sync::Notify;

use crate::{engine::hold_record::HoldRecord, info::LockInfo};

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

    pub(super) fn pass_on(&self, info: &LockInfo) {
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

    /// Returns the listeners of these keys. The caller tells them without the mutex, because they wake tasks.
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

    /// Takes the next hold to announce, or waits for one.
    pub(super) async fn next(&self) -> Arc<HoldRecord> {
        loop {
            let due = lock(&self.due).pop_front();
            match due {
                Some(hold) => return hold,
                None => self.wake.notified().await,
            }
        }
    }
}
