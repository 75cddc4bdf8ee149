//! Readiness of a client's servers, and clients that do not wait for them.

use crate::{client::LockClient, error::LockError, store::StoreError};

impl LockClient {
    /// Makes a client with the default options, without waiting for its servers. See
    /// [`LockClientBuilder::connect_lazy`](crate::LockClientBuilder::connect_lazy).
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect_lazy`](crate::LockClientBuilder::connect_lazy).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// LockClient::connect_lazy("redis://127.0.0.1:6379/")?.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_lazy(url)
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
    /// let client = rlock_core::LockClient::connect_blocking("memory:")?;
    /// let guard = client.lock("order:42").acquire_blocking()?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_blocking(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_blocking(url)
    }

    /// Checks that the store replies, for a readiness probe. The check covers the server, the
    /// master of a Sentinel service, all masters of a cluster, or a majority of a quorum. The
    /// embedded store always replies.
    ///
    /// The check sends one `PING` to each of these servers in parallel, over the background
    /// connections. It takes at most the [response
    /// time-out](crate::LockClientBuilder::response_timeout), including the wait of a client that
    /// is not connected yet.
    ///
    /// A reply does not prove that locks can be acquired: a server without free memory replies,
    /// too.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if a server does not reply, or cannot serve now because it loads
    /// its data, for example. [`LockError::Store`] if a server refuses this client,
    /// [`LockError::Closed`] after a shutdown.
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
    /// let is_ready = client.ping().await.is_ok();
    /// assert!(is_ready);
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<(), LockError> {
        let core = self.core();
        let action = || format!("ping {}", core.store.place());
        if core.is_closed() {
            return Err(LockError::Closed { action: action() });
        }
        let started = core.clock.now();
        let timeout = core.options.response_timeout;
        let answer = core.store.ping(timeout);
        let answer = core.in_runtime_within(Some(timeout * 2), answer).await;
        let answer = answer.unwrap_or_else(|| Err(StoreError::stands_still()));
        answer.map_err(|error| error.into_lock_error(action(), core.clock.now().since(started)))
    }

    /// Waits until the store replies. Fails at once if the store refuses this client.
    pub(crate) async fn until_ready(&self, patience: std::time::Duration) -> Result<(), LockError> {
        use crate::wait::Backoff;
        use tokio::time::{Instant, sleep};

        let core = self.core();
        let started = core.clock.now();
        let limit = Some(patience + core.options.response_timeout);
        let answer = core.in_runtime_within(limit, async {
            let until = Instant::now() + patience;
            let mut backoff = Backoff::default();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let pause = backoff.next();
                match core.store.ping(left).await {
                    Err(error) if error.transient && pause < left => sleep(pause).await,
                    answer => return answer,
                }
            }
        });
        let answer = answer.await;
        let answer = answer.unwrap_or_else(|| Err(StoreError::stands_still()));
        answer.map_err(|error| {
            let action = format!("connect to {}", core.store.place());
            error.into_lock_error(action, core.clock.now().since(started))
        })
    }
}
