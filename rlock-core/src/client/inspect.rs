//! Requests about a lock or its store: `inspect`, `revoke` and `ping`.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

use super::LockClient;
use crate::{
    error::LockError,
    key::Key,
    store::{AT_LEAST_OWNER, SendOptions, StoreError},
    wait::Backoff,
};

impl LockClient {
    /// Removes the lock of this key from the embedded store and hands it off to the next waiter.
    /// Returns `true` if the lock was held. For tests of a service that loses a lock.
    ///
    /// The holder loses the lock with [`LostCause::Removed`](crate::LostCause::Removed), as if its
    /// key had been deleted on a server.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] for an invalid key, [`LockError::Closed`] after shutdown.
    /// [`LockError::Store`] if the store is not the embedded one: delete the key on the server
    /// instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let body = lock.run(async {
    ///     assert!(client.revoke("order:42").expect("the embedded store"));
    ///     std::future::pending::<()>().await;
    /// });
    /// assert!(matches!(body.await, Err(LockError::Lost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn revoke(&self, key: &str) -> Result<bool, LockError> {
        let key = Key::parse(key)?;
        let core = self.core();
        let action = format!("revoke lock `{key}`");
        if core.is_closed() {
            return Err(LockError::Closed { action });
        }
        let revoked = core.store.revoke(&key);
        revoked.map_err(|error| error.into_lock_error(action, Duration::ZERO))
    }

    /// Returns the current state of the lock of this key, or `None` if the lock is free.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Unavailable`] or [`LockError::Store`].
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
    /// let guard = client.lock("order:42").acquire().await?;
    /// let info = client.inspect("order:42").await?.expect("held");
    /// assert_eq!(info.owner, guard.owner().to_string());
    /// assert_eq!(info.count, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, key: &str) -> Result<Option<LockInfo>, LockError> {
        let key = Key::parse(key)?;
        let core = self.core();
        let timeout = core.options.response_timeout;
        let request = core.store.inspect(&key, SendOptions::background(timeout));
        let entry = self.ask(timeout * 2, request, || format!("inspect lock `{key}`"));
        let Some(entry) = entry.await? else {
            return Ok(None);
        };
        let own = core.queues.owned(&key);
        let own = own.filter(|hold| hold.owner.to_string() == entry.owner);
        Ok(Some(LockInfo {
            retained: own.as_ref().is_some_and(|hold| hold.is_retained()),
            token: own.map(|hold| hold.token()).or(entry.token),
            owner: entry.owner,
            count: entry.count,
            ttl: entry.ttl,
        }))
    }

    /// Checks that the store replies, for a readiness probe. The check covers the server, the
    /// master of a Sentinel service, all masters of a cluster, or a majority of a quorum. The
    /// embedded store always replies.
    ///
    /// The check sends one `PING` to each of these servers in parallel, over the background
    /// connections. It takes at most the [response
    /// time-out](crate::LockClientBuilder::response_timeout), including the wait of a client that is
    /// not connected yet. A reply does not prove that locks can be acquired: a server without free
    /// memory replies, too.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if a server does not reply, or cannot serve now because it loads
    /// its data, for example. [`LockError::Store`] if a server refuses this client,
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
    /// let status = if client.ping().await.is_ok() { 200 } else { 503 };
    /// assert_eq!(status, 200);
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<(), LockError> {
        let core = self.core();
        let timeout = core.options.response_timeout;
        let action = || format!("ping {}", core.store.describe());
        self.ask(timeout * 2, core.store.ping(timeout), action)
            .await
    }

    /// Waits until the store replies. Returns an error at once if the store refuses this client.
    pub(crate) async fn until_ready(&self, wait: Duration) -> Result<(), LockError> {
        let core = self.core();
        let limit = wait + core.options.response_timeout;
        let ready = async {
            let until = Instant::now() + wait;
            let mut backoff = Backoff::default();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let pause = backoff.next();
                match core.store.ping(left).await {
                    Err(error) if error.transient && pause < left => sleep(pause).await,
                    answer => return answer,
                }
            }
        };
        self.ask(limit, ready, || {
            format!("connect to {}", core.store.describe())
        })
        .await
    }

    /// Awaits a reply of the store, for `limit` at most.
    async fn ask<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<T, StoreError>>,
        action: impl Fn() -> String,
    ) -> Result<T, LockError> {
        let core = self.core();
        if core.is_closed() {
            return Err(LockError::Closed { action: action() });
        }
        let started = core.clock.now();
        let reply = core.in_runtime_within(Some(limit), reply).await;
        let reply = reply.unwrap_or_else(|| Err(StoreError::not_driven()));
        reply.map_err(|error| error.into_lock_error(action(), core.clock.now().since(started)))
    }
}

/// The state of a lock on its store, from [`LockClient::inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The owner as text, `<client uuid>:<sequence>`, or the word `kept` if there is none. See
    /// [`holder`](Self::holder).
    pub owner: String,
    /// The number of nested entries of the owner; 1 for a lock that is not nested. On a quorum, 0
    /// while the lock is handed to the first owner in the queue.
    pub count: u32,
    /// How long the store keeps the lock without renewal; `None` if it does not end.
    pub ttl: Option<Duration>,
    /// The fencing token of the current hold, if this client holds the lock. Otherwise the largest
    /// token that the store has reserved for the owner, if the store still knows it.
    pub token: Option<u64>,
    /// Whether this client [retains](crate::Lock::retain) the lock: it is not held, and the next call
    /// of this client acquires it without a request. A lock that another client retains shows as held
    /// by that client.
    pub retained: bool,
}

impl LockInfo {
    /// Returns the owner that holds the lock. Returns `None` if the holder has released the lock
    /// and only [`at_least`](crate::Lock::at_least) keeps it taken.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        (self.owner != AT_LEAST_OWNER).then_some(self.owner.as_str())
    }
}
