//! `LockClientBuilder`: every option of a client, and the defaults of its locks.

mod clock;
mod diagnose;
mod env;
mod runtime;
mod start;

use std::{error::Error, fmt, time::Duration};

use rlock_proto::options::{LockOptions, Wait};

pub(crate) use self::clock::ClockOption;
use crate::{
    error::LockError,
    limits,
    options::{Identity, Options, Reentry, Replicas},
    store::{credentials::Credentials, options::StoreOptions, provider::Provider},
};

/// A builder of a [`LockClient`](crate::LockClient).
///
/// The methods that make the client check all options, and return [`LockError::InvalidOption`] for a value that is
/// out of bounds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use rlock_core::LockClient;
///
/// # fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::builder()
///     .default_lease(Duration::from_secs(10))
///     .default_wait(Duration::from_secs(2))
///     .in_memory()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct LockClientBuilder {
    options: Options,
    store: StoreOptions,
    connect_retry_for: Duration,
    clock: ClockOption,
    /// Opened only if the runtime is known to have timers and I/O.
    second_connection: bool,
}

impl Default for LockClientBuilder {
    fn default() -> Self {
        let store = StoreOptions::default();
        Self {
            options: Options {
                lock: LockOptions::default(),
                reentry: Reentry::default(),
                max_local_handovers: 16,
                response_timeout: store.response_timeout,
                fence_retention: store.fence_retention,
                replicas: None,
                identity: Identity::default(),
                inspectable: true,
                trace_id: None,
                redact_keys: false,
            },
            store,
            connect_retry_for: Duration::ZERO,
            clock: ClockOption::default(),
            second_connection: true,
        }
    }
}

impl LockClientBuilder {
    /// Sets the prefix of all keys on the server. Defaults to `lock:`. At most 256 bytes.
    ///
    /// Clients exclude each other only under the same prefix. Braces are not allowed, because they
    /// would move every lock to one Redis Cluster slot. Neither are white space and control
    /// characters, which usually come from a configuration by mistake.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a longer prefix, and for one with
    /// braces, white space or control characters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.store.prefix = prefix.into();
        self
    }

    /// Sets the [lease](crate::Lock::lease) of locks that set none. Defaults to 30 seconds. Accepts
    /// 10 milliseconds to 24 hours.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a lease out of these bounds.
    pub fn default_lease(mut self, lease: Duration) -> Self {
        self.options.lock.lease = lease;
        self
    }

    /// Sets the [wait](crate::Lock::wait) of locks that set none. Defaults to 10 seconds. At most 366
    /// days.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a longer wait.
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.options.lock.wait = Wait::For(wait);
        self
    }

    /// Lets an acquire of a lock that sets no [wait](crate::Lock::wait) wait without a limit.
    pub fn default_wait_forever(mut self) -> Self {
        self.options.lock.wait = Wait::Forever;
        self
    }

    /// Enables or disables the [watchdog](crate::Lock::watchdog) of locks that set nothing else.
    /// Enabled by default.
    pub fn default_watchdog(mut self, renew: bool) -> Self {
        self.options.lock.watchdog = renew;
        self
    }

    /// Sets how long this client [retains](crate::Lock::retain) locks that set nothing else.
    /// Defaults to zero, which releases a lock after its last hold. At most 24 hours.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a longer time, and for any time but zero
    /// without the [watchdog](Self::default_watchdog), which renews a retained lock.
    pub fn default_retain(mut self, retain: Duration) -> Self {
        self.options.lock.retain = retain;
        self
    }

    /// Sets where nested entries are counted. Defaults to [`Reentry::Counted`].
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.options.reentry = reentry;
        self
    }

    /// Sets how many calls of this client may have a lock in a row while other clients wait for it. Defaults to 16.
    ///
    /// Passing the lock to another call of this client costs no request, provided that the call asks for the same
    /// lease. So the calls that were queued when this client received the lock can be served before another client
    /// that asked earlier, while calls that queue later are served after it. With 0, the store serves clients in the
    /// order in which they asked. As long as no other client waits, there is no limit.
    pub fn max_local_handovers(mut self, most: usize) -> Self {
        self.options.max_local_handovers = most;
        self
    }

    /// Sets how long the server keeps the last fence of a key, from which its next tokens continue. The time counts
    /// from the end of the last grant's lease, or from the end of a longer hold. Defaults to 1 minute. Accepts 1
    /// minute to 366 days.
    ///
    /// Each key that was used within that time costs the server about 150 bytes (Redis 7.0, a key of eight
    /// characters). After a fence has expired, the next token starts from the server's clock, or above the largest
    /// token that this client has seen at the store, whichever is larger. So it is larger than all earlier tokens,
    /// unless that clock has stepped back by more than the time since the last grant and the client that asks has not
    /// seen a later token.
    ///
    /// Clients of the same keys should use the same value, because the last use of a key decides. The embedded store
    /// keeps its last token for as long as the process lives.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a time out of these bounds.
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.options.fence_retention = retention;
        self
    }

    /// Enables or disables `TCP_NODELAY`, which sends each request at once. Enabled by default.
    /// Disable it on a slow network where packets are expensive.
    pub fn tcp_nodelay(mut self, at_once: bool) -> Self {
        self.store.connection.nodelay = at_once;
        self
    }

    /// Sets how long one attempt to connect may take, from the name look-up to the end of the
    /// handshake. Defaults to 5 seconds. Accepts 1 millisecond to 1 hour.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a time-out out of these bounds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.store.connect_timeout = timeout;
        self
    }

    /// Sets how long [`connect`](Self::connect) and [`connect_blocking`](Self::connect_blocking) try to reach
    /// unreachable servers. Defaults to zero, which tries once. At most 366 days.
    ///
    /// An error that a server returns, such as a refused password, ends the attempts. If the client has a provider of
    /// [`credentials`](Self::credentials), a refused login does not, because the provider may return others.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a longer time.
    pub fn connect_retry_for(mut self, time: Duration) -> Self {
        self.connect_retry_for = time;
        self
    }

    /// Sets how long one request may remain without a reply. Defaults to 2 seconds. Accepts 1
    /// millisecond to 1 hour. After that time, the client replaces the connection and sends the
    /// request again.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for a time-out out of these bounds.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// Sets a provider of the user and the password, for credentials that change: tokens of a cloud's IAM, or rotated
    /// passwords. The client asks the provider at each attempt to connect, on all topologies. URLs must then not have
    /// a user or a password, except those of the Sentinels.
    ///
    /// The returned future runs within the attempt to connect, on the client's thread or on the runtime that made the
    /// client. It must not block for long, and is dropped if the attempt takes too long: the time-out of attempts to
    /// reconnect grows from 250 milliseconds to the [`connect_timeout`](Self::connect_timeout). Several connections
    /// may ask at the same time, so keep a token in a cache. Errors and logs show the text of the provider's error.
    ///
    /// An error of the provider and a refused login are transient: the client asks again, and an acquire retries within
    /// its `wait`. [`connect`](Self::connect) itself tries once, unless [`connect_retry_for`](Self::connect_retry_for)
    /// is set. Connections that are open keep the credentials with which they logged in. Close them at the server to
    /// make the client log in again.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] if a URL also has a user or a password,
    /// and for the embedded store.
    ///
    /// # Examples
    ///
    /// A password in a file, which may be replaced:
    ///
    /// ```no_run
    /// use rlock_core::{Credentials, LockClient};
    ///
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .credentials(|| async {
    ///         let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///         Ok::<_, std::io::Error>(Credentials::new("locker", password.trim_end()))
    ///     })
    ///     .connect("redis://redis.internal/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.store.connection.credentials = Some(Provider::new(
            "the provider of credentials failed",
            provider,
        ));
        self
    }

    /// Requires that each grant reaches at least this many replicas within this time, which is added to the `wait`.
    /// If it does not, the client releases the lock, and the acquire returns [`LockError::Unavailable`]: after the
    /// `wait`, this time and, if the server does not reply to the release, one [response
    /// time-out](Self::response_timeout). Not required by default.
    ///
    /// Works with one server, with Sentinels, and with a Redis Cluster, where each master has its
    /// own replicas. The server's user needs the permission `+wait`. The client confirms grants
    /// only: renewals, nested entries and releases may reach the replicas later.
    ///
    /// A failover forgets a lock that the promoted replica does not have, so the lock can be granted while it is
    /// still held. This option narrows that window but **does not close it**: another replica may be promoted, and a
    /// replica may lose what it had in memory only. A fencing token that storage checks closes it, and so does a
    /// [quorum](crate::StoreUrl::quorum).
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] for zero replicas, for a time out of 1
    /// millisecond to 1 hour, for a quorum, for the embedded store, and for Postgres, which waits for the
    /// standbys in its `synchronous_standby_names` by itself.
    pub fn wait_for_replicas(mut self, least: usize, within: Duration) -> Self {
        self.options.replicas = Some(Replicas { least, within });
        self
    }

    fn check(&self) -> Result<(), LockError> {
        limits::lock(limits::OF_CLIENT, &self.options.lock)?;
        limits::timeout("connect_timeout", self.store.connect_timeout)?;
        limits::wait("connect_retry_for", Wait::For(self.connect_retry_for))?;
        limits::timeout("response_timeout", self.options.response_timeout)?;
        limits::replicas(self.options.replicas)?;
        limits::fence_retention(self.options.fence_retention)?;
        limits::service(&self.options.identity)?;
        limits::prefix("prefix", &self.store.prefix)
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("prefix", &self.store.prefix)
            .field("lock", &self.options.lock)
            .field("response_timeout", &self.options.response_timeout)
            .field("connect_timeout", &self.store.connect_timeout)
            .finish_non_exhaustive()
    }
}
