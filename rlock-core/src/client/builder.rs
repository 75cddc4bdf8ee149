//! The options of a client.

mod connect;

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;

use crate::{
    clock::{ClientClock, Clock},
    error::LockError,
    lease::MAX_LEASE,
    limits,
    options::{LockOptions, Options, Reentry, Replicas, Wait},
};

#[cfg(feature = "tls")]
use crate::store::redis::Tls;

/// A builder of a [`LockClient`](crate::LockClient).
///
/// Methods that make a client check the options, and return [`LockError::InvalidOption`] for a
/// value out of bounds.
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
    prefix: String,
    fence_retention: Duration,
    options: Options,
    connect_timeout: Duration,
    connect_wait: Duration,
    tcp_nodelay: bool,
    background: Background,
    /// `None` enables it if the runtime is known to have timers and I/O.
    caller_connection: Option<bool>,
    clock: ClientClock,
    #[cfg(feature = "tls")]
    tls: Tls,
}

/// Where the client's background tasks run.
#[derive(Clone, Default)]
enum Background {
    /// On the client's own thread.
    #[default]
    Own,
    On(Handle),
    /// On the runtime that the client is made in, with that runtime's clock.
    TokioTime,
}

impl Default for LockClientBuilder {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            fence_retention: MAX_LEASE,
            options: Options {
                lock: LockOptions::default(),
                reentry: Reentry::default(),
                local_handovers: 16,
                response_timeout: Duration::from_secs(2),
                replicas: None,
                redact_keys: false,
            },
            connect_timeout: Duration::from_secs(5),
            connect_wait: Duration::ZERO,
            tcp_nodelay: true,
            background: Background::default(),
            caller_connection: None,
            clock: ClientClock::default(),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }
}

impl LockClientBuilder {
    /// Sets the prefix of the names of all keys on the server. Defaults to `lock:`. At most 256
    /// bytes.
    ///
    /// Clients exclude each other only under the same prefix. Braces are not allowed: they would
    /// move every lock to one Redis Cluster slot.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the [lease](crate::Lock::lease) of locks that set none. Defaults to 30 seconds.
    pub fn default_lease(mut self, lease: Duration) -> Self {
        self.options.lock.lease = lease;
        self
    }

    /// Sets the [wait](crate::Lock::wait) of locks that set none. Defaults to 10 seconds.
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.options.lock.wait = Wait::For(wait);
        self
    }

    /// Enables or disables the [watchdog](crate::Lock::watchdog) of locks that set nothing else.
    /// Enabled by default.
    pub fn watchdog(mut self, renew: bool) -> Self {
        self.options.lock.watchdog = renew;
        self
    }

    /// Sets how long this client [retains](crate::Lock::retain) locks that set nothing else.
    /// Defaults to zero, which releases a lock after its last hold.
    pub fn retain(mut self, retain: Duration) -> Self {
        self.options.lock.retain = retain;
        self
    }

    /// Sets where nested entries are counted. Defaults to [`Reentry::Counted`].
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.options.reentry = reentry;
        self
    }

    /// Sets how many local waiters may be served in a row while other clients wait. Defaults to 16.
    ///
    /// A local hand-over costs no request. Only waiters that were queued when this process received
    /// the lock are counted. They may precede a client that asked earlier. Later callers wait until
    /// that client is served. With 0, the store serves clients in the order in which they asked.
    /// While no other client waits, there is no limit.
    pub fn local_handovers(mut self, most: usize) -> Self {
        self.options.local_handovers = most;
        self
    }

    /// Sets how long the server keeps the fencing token of a key after its last use. The last use
    /// is the last grant or renewal, plus its lease. Defaults to 24 hours, the longest lease.
    /// Accepts 24 hours to 366 days.
    ///
    /// Each key that was used within that time costs the server about 130 bytes (Redis 7.0, a key
    /// of eight characters). After a token has expired, the next token starts from the server's
    /// clock in microseconds. It exceeds all earlier tokens unless that clock was set back.
    ///
    /// Clients of the same keys should use the same value: the last use of a key decides. The
    /// embedded store keeps its last token for as long as it lives.
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.fence_retention = retention;
        self
    }

    /// Enables or disables `TCP_NODELAY`, which sends each request at once. Enabled by default.
    /// Disable it on a slow network where packets are expensive.
    pub fn tcp_nodelay(mut self, at_once: bool) -> Self {
        self.tcp_nodelay = at_once;
        self
    }

    /// Sets how long one attempt to connect may take, from the name look-up to the end of the
    /// handshake. Defaults to 5 seconds. Accepts 1 millisecond to 1 hour.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long [`connect`](Self::connect) and [`quorum`](Self::quorum) try to reach
    /// unreachable servers. Defaults to zero, which tries once. At most 366 days.
    ///
    /// An error that a server returns, such as a refused password, ends the attempts.
    pub fn connect_wait(mut self, wait: Duration) -> Self {
        self.connect_wait = wait;
        self
    }

    /// Sets how long one request may remain without a reply. Defaults to 2 seconds. Accepts 1
    /// millisecond to 1 hour. After that time, the client replaces the connection and sends the
    /// request again.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// Requires that each grant reaches at least this many replicas within this time, in addition
    /// to the wait. Not required by default. Otherwise the client releases the lock, and the
    /// acquire returns [`LockError::Unavailable`].
    ///
    /// Works with one server, with Sentinels, and with a Redis Cluster, where each master has its
    /// own replicas. The server's user needs the permission `+wait`. The client confirms grants
    /// only: renewals, nested entries and releases may reach the replicas later.
    ///
    /// A failover forgets a lock that the promoted replica does not have. The lock can then be
    /// granted while it is held. This option narrows that window but **does not close it**: another
    /// replica may be promoted, and a replica may lose what it had in memory only. A fencing token
    /// that storage checks closes it, and so does a [quorum](crate::LockClient::quorum).
    pub fn replicas(mut self, least: usize, within: Duration) -> Self {
        self.options.replicas = Some(Replicas { least, within });
        self
    }

    /// Runs the background tasks on this runtime instead of a thread of the client. Such a client
    /// opens no [second connection](Self::caller_connection).
    ///
    /// Nothing is renewed or released while the runtime is blocked, while no `block_on` drives a
    /// current-thread runtime, or after the runtime has shut down. Calls still end in time, with
    /// [`LockError::Unavailable`].
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] if the runtime has no timers or, for a
    /// store on a server, no I/O. The runtimes of `#[tokio::main]` and `Runtime::new` have both.
    ///
    /// # Panics
    ///
    /// In a program built with `panic = "abort"`, a missing driver cannot be detected beforehand. A
    /// task of the client panics then.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.background = Background::On(runtime);
        self
    }

    /// Enables or disables a second connection to a server or cluster, on the Tokio runtime that
    /// the client is made in. Enabled by default if that runtime has timers and I/O.
    ///
    /// Tasks on that runtime send their requests over the second connection, without waking another
    /// thread. With a server nearby, this saves a third of the latency of an uncontended lock.
    /// Renewals and background releases use the connection on the client's own thread. A quorum
    /// opens no second connection.
    ///
    /// Tokio reports a missing driver only by a panic. The client therefore tries the runtime once,
    /// when it is made, and catches the panic. On a runtime without timers or I/O, the panic message
    /// is visible. A program that is built with `panic = "abort"` tries nothing, and opens the second
    /// connection only with `caller_connection(true)`.
    ///
    /// # Panics
    ///
    /// With `panic = "abort"` and `caller_connection(true)`, a task of the client panics on a
    /// runtime without timers or I/O.
    pub fn caller_connection(mut self, enabled: bool) -> Self {
        self.caller_connection = Some(enabled);
        self
    }

    /// Uses the clock of the Tokio runtime that the client is made in, and runs the background
    /// tasks there. In tests with the embedded store, `tokio::time::pause` and
    /// `tokio::time::advance` then control leases and waits.
    ///
    /// Clients that share a named embedded store must all use this option, or none. Blocking calls
    /// wait in real time, because a paused clock stands still while a thread is blocked.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`] outside of a Tokio runtime. It also
    /// does so for a server, because a server's leases end by the server's clock.
    ///
    /// # Panics
    ///
    /// Tasks of the client panic on a runtime without timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::builder().tokio_time().in_memory()?;
    /// let held = client.lock("order:42").acquire().await?;
    /// // Returns at once if the clock is paused.
    /// let brief = client.lock("order:42").wait(Duration::from_millis(10));
    /// assert!(matches!(brief.acquire().await, Err(LockError::Timeout { .. })));
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tokio_time(mut self) -> Self {
        self.background = Background::TokioTime;
        self
    }

    /// Sets the trusted certificate authorities, as PEM, for TLS connections to servers and
    /// Sentinels. Replaces the authorities of the system and of `SSL_CERT_FILE`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = LockClient::builder()
    ///     .tls_ca(std::fs::read("/etc/locks/ca.pem")?)
    ///     .tls_client_certificate(
    ///         std::fs::read("/etc/locks/client.pem")?,
    ///         std::fs::read("/etc/locks/client.key")?,
    ///     )
    ///     .connect("rediss://redis.internal:6380/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.trust(pem.into());
        self
    }

    /// Sets the client's certificate for TLS connections to servers and Sentinels that require one
    /// (`tls-auth-clients yes`). `certificate` is PEM and includes the intermediate certificates.
    /// `key` is the private key as PEM, without a password.
    #[cfg(feature = "tls")]
    pub fn tls_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.present(certificate.into(), key.into());
        self
    }

    /// Leaves keys out of spans, logs and errors, because keys can be personal data. Disabled by default.
    ///
    /// The [name](crate::Lock::name) of the lock takes the place of its key, or `<redacted>` if it has none. The
    /// attribute sets its key template as the name. This concerns the text and the fields of each
    /// [`LockError`], and the `Debug` of locks and guards. Methods such as
    /// [`LockGuard::key`](crate::LockGuard::key) return the key. The server stores keys as always.
    ///
    /// [`LockError::NoClient`] comes from no client. It leaves keys out if any client of the process does.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::LockClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder().redact_keys(true).in_memory()?;
    /// let lock = client.lock("patient:ann@example.com").name("patient:<email>");
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.key(), "patient:ann@example.com");
    /// client.shutdown().await?;
    /// let error = guard.release().await.expect_err("lost");
    /// assert!(error.to_string().starts_with("lock `patient:<email>` was lost"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn redact_keys(mut self, redact: bool) -> Self {
        self.options.redact_keys = redact;
        self
    }

    /// Replaces the system's clock, for tests.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = ClientClock::given(clock);
        self
    }

    fn check(&self) -> Result<(), LockError> {
        limits::lock("default_lease", "default_wait", &self.options.lock)?;
        limits::timeout("connect_timeout", self.connect_timeout)?;
        limits::wait("connect_wait", Wait::For(self.connect_wait))?;
        limits::timeout("response_timeout", self.options.response_timeout)?;
        limits::replicas(self.options.replicas)?;
        limits::fence_retention(self.fence_retention)?;
        limits::prefix(&self.prefix)
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("prefix", &self.prefix)
            .field("options", &self.options)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
