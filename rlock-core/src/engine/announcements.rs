//! Which holds a client announces to all clients of the store, and who listens for announcements of a key.
//!
//! An announcement is the description of a hold, or its end. The background of the holder's client sends it, and the
//! store carries the messages and keeps none of them. So a listener also learns that it may have missed one.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, atomic::Ordering},
};

use rlock_proto::{key::Key, store::KeyFilter};
use tokio::sync::Notify;

use crate::{engine::hold_record::HoldRecord, info::LockInfo};

/// Listens for announcements of a key.
pub(crate) trait HoldListener: Send + Sync {
    /// Handles the announcement of a hold.
    fn hear(&self, info: &LockInfo);

    /// Handles the announcement that the hold with this token has ended. The store may not have released it yet.
    fn ended(&self, token: u64);

    /// Handles that announcements may have been missed.
    fn missed(&self);
}

/// What a client announces.
pub(crate) enum News {
    Holds(Box<LockInfo>),
    /// The hold of this key with this token has ended.
    Ended(Key, u64),
}

#[derive(Default)]
pub(crate) struct Announcements {
    /// The databases of this client's locks.
    pub(super) databases: OnceLock<String>,
    listeners: Mutex<Vec<(Key, Weak<dyn HoldListener>)>>,
    due: Mutex<Due>,
    wake: Notify,
    /// Notified when no announcement is due or under way.
    sent: Notify,
}

#[derive(Default)]
struct Due {
    /// The holds that have begun or ended since they were last announced.
    holds: VecDeque<Arc<HoldRecord>>,
    is_sending: bool,
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
    pub(super) fn hear(&self, databases: &str, news: &News) {
        if self.databases.get().is_some_and(|own| own == databases) {
            self.pass_on(news);
        }
    }

    pub(super) fn pass_on(&self, news: &News) {
        match news {
            News::Holds(info) => {
                for listener in self.listeners(|key| key.as_str() == info.key) {
                    listener.hear(info);
                }
            }
            News::Ended(ended, token) => {
                for listener in self.listeners(|key| key == ended) {
                    listener.ended(*token);
                }
            }
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

    /// Makes the background announce this hold, or its end if it has ended by then.
    pub(super) fn announce(&self, hold: &Arc<HoldRecord>) {
        hold.is_announced.store(true, Ordering::Relaxed);
        let holds = &mut lock(&self.due).holds;
        if !holds.iter().any(|other| Arc::ptr_eq(other, hold)) {
            holds.push_back(Arc::clone(hold));
        }
        self.wake.notify_one();
    }

    /// Handles that this hold has ended or is lost.
    pub(super) fn ends(&self, hold: &Arc<HoldRecord>) {
        if hold.is_announced.load(Ordering::Relaxed) {
            self.announce(hold);
        }
    }

    /// Takes the next hold to announce, or waits for one. The one before is announced.
    pub(super) async fn next(&self) -> Arc<HoldRecord> {
        loop {
            let next = {
                let mut due = lock(&self.due);
                let next = due.holds.pop_front();
                due.is_sending = next.is_some();
                next
            };
            if let Some(hold) = next {
                return hold;
            }
            self.sent.notify_waiters();
            self.wake.notified().await;
        }
    }

    /// Resolves when all clients have been told of all holds that have begun or ended until now.
    pub(crate) async fn until_sent(&self) {
        loop {
            let mut sent = pin!(self.sent.notified());
            sent.as_mut().enable();
            let is_sent = {
                let due = lock(&self.due);
                due.holds.is_empty() && !due.is_sending
            };
            if is_sent {
                return;
            }
            sent.await;
        }
    }
}
