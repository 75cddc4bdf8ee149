//! Readiness probe: proves that the store grants locks, by acquiring one.

use std::{error::Error, sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use rlock_proto::{
    few,
    options::{LockOptions, Site, Wait},
};

use super::LockClient;
use crate::{
    error::LockError,
    lock::{Lock, NamedKey},
};

/// The label of the locks in metrics and spans. Their keys begin with it, too.
const LABEL: &str = "rlock:probe";
/// A third of the default lease, so the locks of a process that is killed while it probes are soon gone.
const LEASE: Duration = Duration::from_secs(10);

impl LockClient {
    /// Proves that the store grants locks to this client, for a readiness probe or a check before a deployment.
    ///
    /// [`ping`](Self::ping) also succeeds at a server that refuses every lock, because its memory is full, too few
    /// replicas are connected, or the user may not call scripts. `probe` acquires a lock and releases it, as any
    /// other call does, so it costs two requests instead of one, and finds all of that. On a cluster, it does so at
    /// each master, and on a quorum at a majority of the servers.
    ///
    /// Each client has a key of its own: `rlock:probe:<client id>`, with a number behind it on a cluster. So probes of
    /// different clients never wait for each other, and probes of one client take turns. The lock has a lease of ten
    /// seconds. Only its [fence](crate::Hold::fence) outlives the probe, for 70 seconds.
    /// [Metrics](Lock::label) show the lock as `rlock:probe`.
    ///
    /// The probe takes at most twice the [response time-out](crate::LockClientBuilder::response_timeout), including
    /// the wait of a client that is not connected yet.
    ///
    /// # Errors
    ///
    /// - [`LockError::Unavailable`] if the store does not reply, or cannot grant locks now.
    /// - [`LockError::Refused`] if it refuses the request, and would refuse it again.
    /// - [`LockError::Lost`] if the lock was gone before its release, for example because of a failover.
    /// - [`LockError::Draining`] and [`LockError::Closed`] if the client is draining or was shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let client = rlock_core::LockClient::in_memory();
    /// let status = match client.probe().await {
    ///     Ok(()) => 200,
    ///     Err(error) => {
    ///         eprintln!("not ready: {error:#}");
    ///         503
    ///     }
    /// };
    /// assert_eq!(status, 200);
    /// # }
    /// ```
    pub async fn probe(&self) -> Result<(), LockError> {
        let core = self.core();
        let timeout = core.options.response_timeout;
        let text = format!("{LABEL}:{}", core.id);
        let keys = core.store.keys_everywhere(text, timeout);
        let keys = self.ask(keys, || "probe the store".to_owned()).await?;
        let probes = keys.into_iter().map(|key| self.prove_grant(key));
        try_join_all(probes).await.map(drop)
    }

    async fn prove_grant(&self, key: String) -> Result<(), LockError> {
        let options = LockOptions {
            lease: LEASE,
            wait: Wait::For(self.core().options.response_timeout),
            watchdog: false,
            site: Site::new(LABEL),
            ..LockOptions::default()
        };
        let lock = Lock::new(self.handle.clone(), few::one(NamedKey::new(key)), options);
        match lock.acquire().await {
            Ok(guard) => guard.release().await,
            // No other client acquires this key, so only another probe of this client can have the lock.
            Err(LockError::Taken { key, waited, .. }) => {
                let source: Box<dyn Error + Send + Sync> =
                    "an earlier probe of this client has not ended".into();
                Err(LockError::Unavailable {
                    action: format!("acquire lock `{key}`"),
                    waited,
                    source: Arc::from(source),
                })
            }
            Err(error) => Err(error),
        }
    }
}
