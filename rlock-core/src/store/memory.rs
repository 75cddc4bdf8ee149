//! The embedded store: the same semantics as a server's, inside one process.

#[cfg(test)]
mod differential;
mod state;

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use uuid::Uuid;

use self::state::State;
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, News, Release, Released, Renewal, Renewed,
    Route, Store, StoreError, TokenBlock,
};
use crate::{clock::ClientClock, key::Key};

/// What a server is elsewhere: the locks that any number of clients share.
#[derive(Default)]
pub(crate) struct Place {
    state: Mutex<State>,
}

impl Place {
    /// The place that every client in this process finds under `name`, for as long as one uses it.
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then tells whoever is to know. Whoever is told may act at once, so not
    /// under the mutex.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (answer, told) = {
            let mut state = self.state();
            let answer = change(&mut state);
            (answer, state.take_news())
        };
        for (listener, news) in told {
            listener(news);
        }
        answer
    }
}

/// One client's access to a place.
pub(crate) struct MemoryStore {
    place: Arc<Place>,
    client: Uuid,
    /// The store knows no other time than that of whoever asks it.
    clock: ClientClock,
}

impl MemoryStore {
    pub(crate) fn join(
        place: Arc<Place>,
        client: Uuid,
        clock: ClientClock,
        listener: Listener,
    ) -> Self {
        place.state().join(client, listener);
        Self {
            place,
            client,
            clock,
        }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let listener = self.place.state().leave(self.client);
        drop(listener);
    }
}

impl Store for MemoryStore {
    fn route(&self) -> Route {
        Route::Home
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        _by: (Route, Duration),
    ) -> Answer<'a, Acquired> {
        let now = self.clock.now();
        let answer = self
            .place
            .change(|state| state.acquire(claims, lease, count, waits, now));
        Box::pin(ready(Ok(answer)))
    }

    fn release<'a>(&'a self, release: Release<'a>, _by: (Route, Duration)) -> Answer<'a, Released> {
        let now = self.clock.now();
        let answer = self.place.change(|state| state.release(&release, now));
        Box::pin(ready(Ok(answer)))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _timeout: Duration,
        _silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(ready(Ok(self.place.state().renew(batch, self.clock.now()))))
    }

    fn extends(&self) -> bool {
        true
    }

    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        _timeout: Duration,
    ) -> Answer<'a, Option<TokenBlock>> {
        let now = self.clock.now();
        Box::pin(ready(Ok(self.place.state().extend(claim, tokens, now))))
    }

    fn place(&self) -> String {
        "the embedded store".to_owned()
    }

    fn ping(&self, _timeout: Duration) -> Answer<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn inspect<'a>(&'a self, key: &'a Key, _timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(ready(Ok(self.place.state().inspect(key, self.clock.now()))))
    }

    fn revoke(&self, key: &Key) -> Result<bool, StoreError> {
        let now = self.clock.now();
        Ok(self.place.change(|state| state.revoke(key, now)))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Somebody who is to be told, and what.
type Told = (Listener, News);
