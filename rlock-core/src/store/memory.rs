//! The embedded store: the same semantics as a server's, inside one process.

#[cfg(test)]
mod differential;
mod state;
mod wait_queues;

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use uuid::Uuid;

use self::state::State;
use super::{
    AcquireRequest, Acquired, Answer, BoxFuture, Claim, Entry, Listener, ReleaseRequest, Released,
    Renewal, Renewed, SendOptions, Store, StoreError, TokenBlock,
};
use crate::{clock::ClientClock, key::Key, lease::Time};

/// The locks that any number of clients share.
#[derive(Default)]
pub(crate) struct Place(Mutex<State>);

impl Place {
    /// Returns the place of this name, which all clients in this process share for as long as one uses it.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        static PLACES: LazyLock<Mutex<HashMap<String, Weak<Place>>>> =
            LazyLock::new(Mutex::default);
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(name).and_then(Weak::upgrade) {
            return place;
        }
        places.retain(|_, place| place.strong_count() > 0);
        let place = Arc::new(Self::default());
        places.insert(name.to_owned(), Arc::downgrade(&place));
        place
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then delivers the messages: not under the mutex, because listeners may act at once.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (reply, messages) = {
            let mut state = self.state();
            (change(&mut state), std::mem::take(&mut state.messages))
        };
        for (listener, news) in messages {
            listener(news);
        }
        reply
    }
}

/// One client's access to a place.
pub(crate) struct MemoryStore {
    place: Arc<Place>,
    client: Uuid,
    /// The store has no clock of its own.
    clock: ClientClock,
}

impl MemoryStore {
    pub(crate) fn join(
        place: Arc<Place>,
        client: Uuid,
        clock: ClientClock,
        listener: Listener,
    ) -> Self {
        place.state().clients.insert(client, listener);
        Self {
            place,
            client,
            clock,
        }
    }

    fn apply<T>(&self, operation: impl FnOnce(&mut State, Time) -> T) -> T {
        let now = self.clock.now();
        self.place.change(|state| operation(state, now))
    }

    fn answer<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut State, Time) -> T,
    ) -> Answer<'static, T> {
        Box::pin(ready(Ok(self.apply(operation))))
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // The listener is returned, because it may not be dropped under the mutex.
        self.place.change(|state| {
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
    ) -> Answer<'a, Acquired> {
        self.answer(|state, now| state.acquire(request, now))
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        _send: SendOptions,
    ) -> Answer<'a, Released> {
        self.answer(|state, now| state.release(request, now))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _send: SendOptions) -> Answer<'a, Renewed> {
        self.answer(|state, now| state.renew(batch, now))
    }

    fn extends(&self) -> bool {
        true
    }

    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        _send: SendOptions,
    ) -> Answer<'a, Option<TokenBlock>> {
        self.answer(|state, now| state.extend(claim, tokens, now))
    }

    fn place(&self) -> String {
        "the embedded store".to_owned()
    }

    fn ping(&self, _timeout: Duration) -> Answer<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn inspect<'a>(&'a self, key: &'a Key, _send: SendOptions) -> Answer<'a, Option<Entry>> {
        self.answer(|state, now| state.inspect(key, now))
    }

    fn revoke(&self, key: &Key) -> Result<bool, StoreError> {
        Ok(self.apply(|state, now| state.revoke(key, now)))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
