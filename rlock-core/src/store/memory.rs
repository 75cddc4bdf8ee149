//! The embedded store: the rules of `rlock_proto::embedded` behind a mutex, shared by the clients of one process.

mod fences;
#[cfg(feature = "testing")]
mod simulated;

use std::{
    collections::HashMap,
    future::{Ready, ready},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::Either;
use uuid::Uuid;

use rlock_proto::{
    embedded,
    key::Key,
    lease::Time,
    store::{
        AcquireRequest, Acquired, Applied, Change, Listener, Notification, Renewal, Renewed,
        StoredLock,
    },
};

#[cfg(feature = "testing")]
pub use self::simulated::SimulatedOutage;

use self::fences::OfProcess;
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError,
    directory::{Cursor, Directory, Page},
};
use crate::clock::ClientClock;

type State = embedded::State<OfProcess>;

/// The locks that any number of clients share.
#[derive(Default)]
pub(crate) struct SharedStore {
    state: Mutex<State>,
    /// The number of simulated outages that have not ended. It changes under the mutex.
    outages: AtomicUsize,
    /// The clock of its first client.
    #[cfg(feature = "testing")]
    clock: std::sync::OnceLock<ClientClock>,
}

impl SharedStore {
    /// Returns the store of this name, which all clients in this process share for as long as one uses it.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        static STORES: LazyLock<Mutex<HashMap<String, Weak<SharedStore>>>> =
            LazyLock::new(Mutex::default);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return store;
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(Self::default());
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then delivers the messages: not under the mutex, because listeners may act at once.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (reply, messages) = {
            let mut state = self.state();
            (change(&mut state), std::mem::take(&mut state.messages))
        };
        for (listener, event) in messages {
            listener(event);
        }
        reply
    }

    /// Executes a request, which fails during an outage.
    fn execute<T>(&self, request: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        // Read under the mutex, so that no request is executed once an outage has begun.
        self.change(|state| {
            if self.outages.load(Ordering::Relaxed) == 0 {
                Ok(request(state))
            } else {
                Err(StoreError::simulated_outage())
            }
        })
    }
}

/// One client's access to a store.
pub(crate) struct MemoryStore {
    shared: Arc<SharedStore>,
    client: Uuid,
    /// The store has no clock of its own.
    clock: ClientClock,
}

impl MemoryStore {
    pub(crate) fn join(
        shared: Arc<SharedStore>,
        client: Uuid,
        clock: ClientClock,
        listener: Listener,
    ) -> Self {
        shared.state().clients.insert(client, listener);
        Self {
            shared,
            client,
            clock,
        }
    }

    fn reply<T>(
        &self,
        operation: impl FnOnce(&mut State, Time) -> T,
    ) -> Ready<Result<T, StoreError>> {
        let now = self.clock.now();
        ready(self.shared.execute(|state| operation(state, now)))
    }

    fn answer<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut State, Time) -> T,
    ) -> ReplyFuture<'static, T> {
        Box::pin(self.reply(operation))
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // The listener is returned, because it may not be dropped under the mutex.
        self.shared.change(|state| {
            state.queues.leave_all(self.client);
            state.clients.remove(&self.client)
        });
    }
}

impl Store for MemoryStore {
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        _send: SendOptions,
    ) -> Replying<'a, Acquired> {
        Either::Left(self.reply(|state, now| state.acquire(request, now)))
    }

    fn apply<'a>(&'a self, change: &'a Change, _send: SendOptions) -> Replying<'a, Applied> {
        Either::Left(self.reply(|state, now| match change {
            Change::SetCount(set) => state.set_count(set, now),
            Change::Downgrade(downgrade) => state.downgrade(downgrade, now),
            Change::Release(release) => {
                let (key, owner) = (&release.key, release.owner);
                // A forced release notifies the holder.
                if owner.client() != self.client && state.held_by(key, owner, now).is_some() {
                    state.tell_taken(key, owner);
                }
                state.release(release, now)
            }
        }))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        _send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        self.answer(|state, now| state.renew(renewals, lease, now))
    }

    fn system(&self) -> Option<&'static str> {
        None
    }

    fn describe(&self) -> String {
        "the embedded store".to_owned()
    }

    fn ping(&self, _timeout: Duration) -> ReplyFuture<'_, ()> {
        self.answer(|_, _| ())
    }

    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        _send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>> {
        self.answer(|state, now| state.inspect(key, now))
    }

    #[cfg(feature = "testing")]
    fn embedded(&self) -> Option<&Self> {
        Some(self)
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        self.answer(|_, _| ())
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Directory for MemoryStore {
    fn publish(&self, client: Uuid, message: Vec<u8>, _: Duration) -> ReplyFuture<'_, bool> {
        self.answer(|state, _| state.notify(client, Notification::Message(message)))
    }

    fn clients(&self, _timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        self.answer(|state, _| state.clients.keys().copied().collect())
    }

    fn scan(&self, _from: Cursor, _timeout: Duration) -> ReplyFuture<'_, Page> {
        self.answer(|state, now| (state.held(now), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlock_proto::{
        mode::LockMode,
        owner::OwnerId,
        store::{Claim, ReleaseRequest},
    };

    #[test]
    fn the_tokens_of_a_store_that_was_dropped_are_not_repeated() {
        let claim = Claim {
            key: Key::parse("k").expect("valid"),
            owner: OwnerId::new(Uuid::nil(), 1, LockMode::Exclusive),
        };
        let request = AcquireRequest {
            claims: rlock_proto::few::one(claim.clone()),
            lease: Duration::from_secs(30),
            waits: false,
        };
        let now = Time::from_nanos(1);
        let mut last = 0;
        for _ in 0..3 {
            let store = SharedStore::named("dropped and made again");
            // The fence runs far ahead of the clock.
            for _ in 0..20_000 {
                let granted = store.state().acquire(&request, now);
                let Acquired::Granted { fences, .. } = granted else {
                    panic!("free: {granted:?}");
                };
                assert!(fences[0] > last, "{} after {last}", fences[0]);
                last = fences[0];
                store.state().release(&ReleaseRequest::of(&claim), now);
            }
        }
    }
}
