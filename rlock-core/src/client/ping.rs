//! Whether the store replies.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

use super::LockClient;
use crate::{error::LockError, store::StoreError, wait::Backoff};

impl LockClient {
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
    pub(super) async fn ask<T>(
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
