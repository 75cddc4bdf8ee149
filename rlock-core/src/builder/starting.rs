//! Clients that do not wait for their servers, and clients for synchronous code.

use std::sync::Arc;
use std::time::Duration;

use super::{LockClientBuilder, embedded};
use crate::{
    blocking::block_on, client::LockClient, error::LockError, redact::redacted, scheme::Kind,
};

impl LockClientBuilder {
    /// Sets how long [`connect`](Self::connect) and [`quorum`](Self::quorum) try to reach
    /// unreachable servers. Defaults to zero, which tries once. An error that a server returns,
    /// such as a refused password, is returned at once.
    ///
    /// Each attempt is limited by [`connect_timeout`](Self::connect_timeout). At most 366 days.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rlock_core::LockClient;
    ///
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .connect_wait(Duration::from_secs(60))
    ///     .connect("redis://127.0.0.1:6379/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_wait(mut self, wait: Duration) -> Self {
        self.connect_wait = wait;
        self
    }

    /// Makes a client of the store that the URL names, without waiting for its servers. The client
    /// connects in the background and retries until the servers can be reached, so a service starts
    /// without them. See [`connect`](Self::connect) for the URLs.
    ///
    /// An acquire waits for the connection within its `wait`, then returns
    /// [`LockError::Unavailable`]. If a server refuses the client, because of a wrong password for
    /// example, the acquire returns [`LockError::Store`] as soon as that is known.
    /// [`LockClient::ping`] reports whether the client is connected. The client logs a warning for
    /// each server that it cannot reach at first.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an invalid URL or option, [`LockError::Unavailable`] if the
    /// system cannot start a thread.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder().connect_lazy("redis://127.0.0.1:6379/")?;
    /// client.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(self, url: &str) -> Result<LockClient, LockError> {
        match self.kind(url)? {
            Kind::Memory => self.join(embedded(url)?),
            kind => self.connect_redis_lazily(url, kind),
        }
    }

    pub(super) fn connect_redis_lazily(
        self,
        url: &str,
        kind: Kind,
    ) -> Result<LockClient, LockError> {
        use crate::store::{
            Store,
            redis::{ClusterStore, RedisStore},
        };

        let (id, hearing) = self.hearing();
        let options = self.redis_options(id);
        let driver = self.driver(true)?;
        let listener = hearing.listener();
        let near = self.near();
        let store: Arc<dyn Store> = if kind == Kind::Cluster {
            ClusterStore::lazy(url, options, listener, &driver.runtime, near)?
        } else {
            RedisStore::lazy(url, options, &listener, near)?
        };
        Ok(self.client(id, store, hearing, driver))
    }

    /// Makes a client of a [`quorum`](Self::quorum) of independent servers, without waiting for
    /// them, as [`connect_lazy`](Self::connect_lazy).
    ///
    /// This method cannot refuse two addresses of the same server. The client detects them once
    /// connected, logs an error, and does not count the second.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a list that is empty, has more than 32 URLs or repeats an
    /// address, for an invalid URL, or for an option out of bounds. [`LockError::Unavailable`] if
    /// the system cannot start a thread.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let urls = ["redis://one/", "redis://two/", "redis://three/"];
    /// let client = LockClient::builder().quorum_lazy(urls)?;
    /// client.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn quorum_lazy<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let urls = self.urls(urls)?;
        self.make_quorum_lazily(&urls)
    }

    pub(super) fn make_quorum_lazily(self, urls: &[String]) -> Result<LockClient, LockError> {
        use crate::store::quorum::QuorumStore;

        let (id, hearing) = self.hearing();
        let options = self.redis_options(id);
        let driver = self.driver(true)?;
        let store = QuorumStore::lazy(urls, options, hearing.listener())?;
        Ok(self.client(id, Arc::new(store), hearing, driver))
    }

    /// Connects from synchronous code, as [`connect`](Self::connect). Blocks the thread until the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`LockError::WouldBlock`] inside an async task.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::builder().connect_blocking("memory:")?;
    /// let guard = client.lock("order:42").acquire_blocking()?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_blocking(self, url: &str) -> Result<LockClient, LockError> {
        let action = || format!("connect to `{}`", redacted(url));
        block_on(action, self.connect(url))?
    }

    /// Connects to a quorum from synchronous code, as [`quorum`](Self::quorum). Blocks the thread
    /// until the client is connected.
    ///
    /// # Errors
    ///
    /// As [`quorum`](Self::quorum), and [`LockError::WouldBlock`] inside an async task.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let urls = ["redis://one/", "redis://two/", "redis://three/"];
    /// let client = LockClient::builder().quorum_blocking(urls)?;
    /// client.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn quorum_blocking<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        block_on(|| "connect to a quorum".to_owned(), self.quorum(urls))?
    }
}
