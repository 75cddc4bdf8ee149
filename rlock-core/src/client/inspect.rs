//! `ping`, and `inspect`: asks the store who holds one lock, and its holder for more about itself.

use std::{future::Future, time::Duration};

use futures_util::future::join;
use rlock_proto::{key::Key, options::Site, store::StoredLock};

use super::LockClient;
use crate::{
    engine::{
        core::Core,
        queries::{ask_holder, ask_waiters, describe, info_of},
    },
    error::LockError,
    info::LockInfo,
    store::{SendOptions, StoreError, retry_within},
};

impl LockClient {
    /// Checks that the store replies: the server, the master of a Sentinel service, all masters of a cluster, or a
    /// majority of a quorum. The embedded store always replies, unless a test simulates an outage.
    ///
    /// The check sends a `PING` to each of these servers in parallel, over the background connections, and to a
    /// quorum again until a majority replies. It takes at most the [response
    /// time-out](crate::LockClientBuilder::response_timeout), including the wait of a client that is not connected
    /// yet. A reply does not prove that locks can be acquired, because a server without free memory replies, too. For
    /// readiness, use [`probe`](Self::probe), which proves that.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if a server does not reply, or cannot serve now because it loads
    /// its data, for example. [`LockError::Refused`] if a server refuses this client,
    /// [`LockError::Closed`] after shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let client = rlock_core::LockClient::in_memory();
    /// assert!(client.ping().await.is_ok(), "the store replies");
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<(), LockError> {
        let core = self.core();
        let timeout = core.options.response_timeout;
        // A service may show the error to its callers, so only the error's reason names the place.
        let pinged = async {
            let pinged = core.store.ping(timeout).await;
            pinged.map_err(|error| error.at(core.store.describe()))
        };
        self.ask(pinged, || "ping the store".to_owned()).await
    }

    /// Waits until the store replies. Returns an error at once if the store refuses this client.
    pub(crate) async fn until_ready(&self, wait: Duration) -> Result<(), LockError> {
        let core = self.core();
        let ready = retry_within(wait, |left| core.store.ping(left));
        self.ask(ready, || format!("connect to {}", core.store.describe()))
            .await
    }

    /// Awaits a reply of the store.
    pub(crate) async fn ask<T>(
        &self,
        reply: impl Future<Output = Result<T, StoreError>>,
        action: impl Fn() -> String,
    ) -> Result<T, LockError> {
        let core = self.core();
        if core.is_closed() {
            return Err(LockError::closed(action()));
        }
        let started = core.clock.now();
        let reply = core.in_runtime(reply).await;
        reply.map_err(|error| error.into_lock_error(action(), core.clock.now().since(started)))
    }

    /// Returns the current state of the lock of this key, or `None` if the lock is free.
    ///
    /// Asks the store for the owner, and then the owner's client for the rest, which takes two more round trips, or
    /// 200 milliseconds if that client does not reply. In that case, `inspect` also looks up the
    /// [`address`](LockInfo::address) of that client among the server's connections. At the same time, it asks the
    /// clients of the first ten [waiters](LockInfo::waiters) who they are, so a silent one also costs 200
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Unavailable`] or [`LockError::Refused`].
    /// [`LockError::Closed`] after shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// assert!(client.inspect("order:42").await?.is_none());
    /// let guard = client.lock("order:42").label("order:<id>").acquire().await?;
    /// let info = client.inspect("order:42").await?.expect("held");
    /// assert_eq!(info.owner, guard.owner().to_string());
    /// assert_eq!(info.depth, 1);
    /// let holder = info.holder.expect("this client");
    /// assert_eq!(holder.label.as_deref(), Some("order:<id>"));
    /// println!("held by {holder}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, key: &str) -> Result<Option<LockInfo>, LockError> {
        let key = self.key(key)?;
        let Some(entry) = self.entry(&key).await? else {
            return Ok(None);
        };
        let core = self.core();
        let queue = entry.queue.clone();
        let mut info = info_of(&key, entry);
        let asked = join(ask_holder_of(core, &key, &info), ask_waiters(core, &queue));
        let (reply, waiters) = core.in_runtime(asked).await;
        info.waiters = waiters;
        if let Some(reply) = reply {
            described(&mut info, reply);
        } else if let Some(owner) = info.owner_id() {
            let timeout = core.options.response_timeout;
            let address = core.in_runtime(core.store.address(owner.client(), timeout));
            // Ignored, because most users have no permission to list the server's connections.
            info.address = address.await.ok().flatten();
        }
        Ok(Some(info))
    }

    /// Returns the lock and its holder, without the waiters, and without the address of a holder that does not reply.
    pub(crate) async fn inspect_holder(&self, key: &str) -> Result<Option<LockInfo>, LockError> {
        let key = self.key(key)?;
        let Some(entry) = self.entry(&key).await? else {
            return Ok(None);
        };
        Ok(Some(self.ask_holder(&key, entry).await))
    }

    /// Returns this lock with what its holder replies.
    pub(crate) async fn ask_holder(&self, key: &Key, entry: StoredLock) -> LockInfo {
        let core = self.core();
        let mut info = info_of(key, entry);
        let asked = ask_holder_of(core, key, &info);
        if let Some(reply) = core.in_runtime(asked).await {
            described(&mut info, reply);
        }
        info
    }

    /// Parses a key, which errors leave out if the client redacts keys.
    pub(crate) fn key(&self, key: &str) -> Result<Key, LockError> {
        let is_hidden = self.core().options.redact_keys;
        let instead = is_hidden.then(|| Site::default().in_place_of_key());
        Key::parse_hidden(key, instead).map_err(LockError::of_key)
    }

    /// Returns what the store has of a lock.
    pub(crate) async fn entry(&self, key: &Key) -> Result<Option<StoredLock>, LockError> {
        let core = self.core();
        let timeout = core.options.response_timeout;
        let request = core.store.inspect(key, SendOptions::new(timeout));
        let request = async {
            match request.await {
                Ok(Some(entry)) if entry.owner == StoredLock::NOT_A_HASH => {
                    Err(StoreError::not_a_lock())
                }
                reply => reply.map_err(|error| error.hide([key])),
            }
        };
        self.ask(request, || format!("inspect lock `{key}`")).await
    }
}

/// Returns the description of the lock by its holder, unless that is silent.
async fn ask_holder_of(core: &Core, key: &Key, info: &LockInfo) -> Option<LockInfo> {
    match info.owner_id() {
        Some(owner) if owner.is_of(core.id) => {
            let mut own = describe(core, key).into_iter();
            own.find(|own| own.owner == info.owner)
        }
        Some(owner) => ask_holder(core, key, owner).await.ok(),
        None => None,
    }
}

/// Adds what only the holder knows.
fn described(info: &mut LockInfo, by_holder: LockInfo) {
    (info.token, info.retained, info.holder) =
        (by_holder.token, by_holder.retained, by_holder.holder);
}
