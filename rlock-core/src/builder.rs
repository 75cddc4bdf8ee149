//! How a client is set up.

mod starting;

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;
use uuid::Uuid;

use crate::{
    client::LockClient,
    clients,
    clock::{ClientClock, Clock, RuntimeClock},
    core::{Core, Hearing},
    driver::Driver,
    error::LockError,
    lease::MAX_LEASE,
    limits,
    options::{Options, Reentry, Replicas, Wait},
    owner::client_name,
    scheme::{Kind, Scheme, known},
    store::{
        Store,
        memory::{MemoryStore, Place},
    },
};
use crate::{
    drivers::drive_connections,
    store::{StoreError, redis::RedisOptions},
};

#[cfg(feature = "tls")]
use crate::store::redis::Tls;

/// Sets up a [`LockClient`].
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
    /// `None`: enabled if the runtime is known to have timers and I/O.
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
                lease: Duration::from_secs(30),
                wait: Wait::For(Duration::from_secs(10)),
                watchdog: true,
                reentry: Reentry::default(),
                local_handovers: 16,
                retain: Duration::ZERO,
                response_timeout: Duration::from_secs(2),
                replicas: None,
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

#[cfg(feature = "tls")]
const TLS_URLS: &str = "write `rediss://`, `rediss-sentinel://` or `rediss-cluster://`";

impl LockClientBuilder {
    /// What the names of all keys on the server begin with; `lock:` unless set. Clients exclude
    /// each other only under the same prefix. Braces are not allowed: they would move every lock
    /// to one Redis Cluster slot.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long the server keeps a lock without renewal, where a lock does not say; 30 seconds
    /// unless set. From 10 milliseconds to 24 hours.
    pub fn default_lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long an acquire waits for its turn, where a lock does not say; 10 seconds unless set.
    /// Zero asks once and does not wait.
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.options.wait = Wait::For(wait);
        self
    }

    /// Whether held leases are renewed, where a lock does not say; they are unless set.
    pub fn watchdog(mut self, renew: bool) -> Self {
        self.options.watchdog = renew;
        self
    }

    /// Whether nested entries are counted at the store; they are unless set.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.options.reentry = reentry;
        self
    }

    /// Sets how many callers of this process may take a lock over from one another while other clients wait for it.
    /// Defaults to 16. Only callers count that waited already when the lock came to this process. They may
    /// come before another process that asked earlier than they did. Callers that ask later wait until
    /// the other process was served.
    ///
    /// A hand-over within a process costs no request. With 0, the store serves clients strictly in the order
    /// in which they asked. While no other client waits, callers of this process take the lock over without a limit.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let strict = LockClient::builder().local_handovers(0).in_memory()?;
    /// # drop(strict);
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_handovers(mut self, most: usize) -> Self {
        self.options.local_handovers = most;
        self
    }

    /// How long this client keeps a lock after its last hold, for its own next call. That call costs no
    /// request then. Zero, the default, gives a lock back at its release; a lock may say otherwise by [`Lock::retain`](crate::Lock::retain).
    ///
    /// For keys with affinity: the jobs of one tenant that mostly run on one node, a partition that one
    /// consumer works on. Another client that wants the lock sends one message and has it as soon as the lock is
    /// given back: at once when the message arrives, and after this time and a second at the latest. The lock is also
    /// given back when the client drains, shuts down or is dropped. A process that is killed leaves it to the lease.
    ///
    /// A release that is followed by a retention, or by another call of this client, sends no request. It fails
    /// only if the lease has ended or the store has reported a loss. From zero to 24 hours. Has no effect with
    /// [`replicas`](Self::replicas), where each hold is confirmed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::LockClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .retain(Duration::from_secs(10))
    ///     .in_memory()?;
    /// client.lock("tenant:7").run(async { /* a job */ }).await?;
    /// let info = client.inspect("tenant:7").await?.expect("kept for the next job");
    /// assert!(info.retained);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retain(mut self, retain: Duration) -> Self {
        self.options.retain = retain;
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
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::LockClient;
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let week = Duration::from_secs(7 * 24 * 60 * 60);
    /// let client = LockClient::builder().fence_retention(week).in_memory()?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.fence_retention = retention;
        self
    }

    /// Whether requests leave at once (`TCP_NODELAY`): so they do unless said otherwise. Where the
    /// network is slow and packets are dear, without it small requests wait for each other.
    pub fn tcp_nodelay(mut self, at_once: bool) -> Self {
        self.tcp_nodelay = at_once;
        self
    }

    /// How long connecting may take, from the look-up of the name to the end of the handshake; 5
    /// seconds unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one request may go unanswered before its connection is given up and it is sent
    /// again; 2 seconds unless set.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// Counts a lock as taken only when so many replicas of its server have it, too; gives it back and
    /// fails with [`LockError::Unavailable`] if they do not say so within this time, which comes on top
    /// of the wait. None unless set. For one server with replicas, for Sentinels, and for a Redis Cluster,
    /// where each master has its own.
    ///
    /// A master that fails takes along what its replicas do not have yet: then the replica that is
    /// promoted grants the lock once more while somebody holds it. This narrows that window and **does
    /// not close it**: another replica may be promoted than one that acknowledged, and a replica may
    /// forget what it had only in memory. What closes it is a fencing token that storage checks, or a
    /// store with a quorum.
    ///
    /// Every grant is waited for, by a connection of its own that writes after it and holds up nobody
    /// else; the watchdog renews the lock meanwhile, and the others in line wait. Renewals, nested entries
    /// and releases are not waited for: a replica that lacks them has the lock, but for a shorter time, with
    /// another count, or for longer than need be. The server's user needs the permission `+wait`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rlock_core::LockClient;
    ///
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .replicas(1, Duration::from_millis(200))
    ///     .connect("redis-sentinel://10.0.0.1,10.0.0.2,10.0.0.3/orders")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn replicas(mut self, least: usize, within: Duration) -> Self {
        self.options.replicas = Some(Replicas { least, within });
        self
    }

    /// Runs the background on this runtime instead of a thread of the client's own.
    ///
    /// This gives up the advantage of a dedicated thread. Nothing is renewed or released while the
    /// runtime is blocked, while no `block_on` drives a current-thread runtime, or after the
    /// runtime has shut down. Calls still end in time, with [`LockError::Unavailable`].
    ///
    /// # Errors
    ///
    /// The client is refused with [`LockError::InvalidOption`] if the runtime has no timers or, for a store on a
    /// server, no I/O. The runtimes of `#[tokio::main]` and `Runtime::new` have both.
    ///
    /// # Panics
    ///
    /// In a program built with `panic = "abort"` a missing driver cannot be detected beforehand. A task of the
    /// client panics then.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.background = Background::On(runtime);
        self
    }

    /// Enables or disables a second connection to a server or cluster, on the Tokio runtime that
    /// the client is made in. Enabled by default if that runtime has timers and I/O.
    ///
    /// Tasks on that runtime send their requests over the second connection. A request then reaches
    /// the server, and its reply the task, without waking another thread. With a server nearby,
    /// this saves a third of the latency of an uncontended lock. Renewals and background releases
    /// use the connection on the client's own thread. A quorum, and a client with
    /// [`runtime`](Self::runtime), open no second connection.
    ///
    /// Tokio reports a missing driver only by a panic. The client therefore tries the runtime once,
    /// when it is made, and catches the panic. On a runtime without timers or I/O, only the panic
    /// message is visible.
    ///
    /// A program that is built with `panic = "abort"` tries nothing. It opens the second connection
    /// only with `caller_connection(true)`.
    ///
    /// # Panics
    ///
    /// With `panic = "abort"` and `caller_connection(true)`, a task of the client panics on a
    /// runtime without timers or I/O. The runtimes of `#[tokio::main]`, `#[tokio::test]` and
    /// `Runtime::new` have both.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::LockClient;
    ///
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let builder = LockClient::builder().caller_connection(false);
    /// builder.connect("redis://127.0.0.1:6379/").await?.install();
    /// # Ok(())
    /// # }
    /// ```
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

    /// Trusts these authorities, as PEM, and no others: the system's are not asked then, nor those of
    /// `SSL_CERT_FILE`. For every URL that speaks of TLS, and for Sentinels as for the servers behind
    /// them. Certificates are verified in any case.
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

    /// Shows this certificate to servers that ask for one (`tls-auth-clients yes`): the certificate, and
    /// those between it and the authority, as PEM, and its private key as PEM without a password. For
    /// every URL that speaks of TLS, and for Sentinels as for the servers behind them.
    #[cfg(feature = "tls")]
    pub fn tls_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.present(certificate.into(), key.into());
        self
    }

    /// Takes the time from this clock, which tests make jump, instead of the system's.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = ClientClock::given(clock);
        self
    }

    /// Connects to the store that the URL names.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server |
    /// | `rediss://…` | the same over TLS (feature `tls`) |
    /// | `unix:///path/to/socket[?db=0&user=…&pass=…]` | the same over a Unix socket |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port],…/service[/database]` | the master that these Sentinels know; looked up again whenever a connection is lost, or the server was demoted. User and password are the master's; `?sentinel_user=…&sentinel_password=…` are for the Sentinels |
    /// | `rediss-sentinel://…` | the same over TLS, to the Sentinels too |
    /// | `redis-cluster://[user:password@]host[:port],host[:port],…` | the Redis Cluster to which these nodes belong; the others are learnt from whichever of them answers |
    /// | `rediss-cluster://…` | the same over TLS |
    /// | `memory:` | a new embedded store |
    /// | `memory:name` | the embedded store of that name, shared by this process's clients |
    ///
    /// `?protocol=resp2` keeps a server that supports RESP3 on RESP2. `valkey://`, `valkeys://`,
    /// `redis+unix://` and `valkey+unix://` are other names of `redis://`, `rediss://` and
    /// `unix://`. A user without a password (`redis://user@host`) logs in with an empty password,
    /// which is sufficient for a user with `nopass`.
    ///
    /// An unreachable server is tried once, unless [`connect_wait`](Self::connect_wait) is set.
    /// [`connect_lazy`](Self::connect_lazy) does not wait for the server. Once connected, the
    /// client reconnects by itself.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a URL or an option that makes no sense,
    /// [`LockError::Unavailable`] if no server answers within the connect timeout,
    /// [`LockError::Store`] if it refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::builder()
    ///     .prefix("billing:lock:")
    ///     .connect("redis://127.0.0.1:6379/")
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self, url: &str) -> Result<LockClient, LockError> {
        match self.kind(url)? {
            Kind::Memory => self.join(embedded(url)?),
            kind => self.connect_redis(url, kind).await,
        }
    }

    /// Connects to several servers that know nothing of each other; see [`LockClient::quorum`].
    ///
    /// # Errors
    ///
    /// As [`LockClient::quorum`]; [`LockError::InvalidOption`] for an option out of bounds too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn quorum<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        use crate::store::quorum::QuorumStore;

        let urls = self.urls(urls)?;
        if !self.connect_wait.is_zero() {
            let wait = self.connect_wait;
            let client = self.make_quorum_lazily(&urls)?;
            client.until_ready(wait).await?;
            return Ok(client);
        }
        let (id, hearing) = self.hearing();
        let driver = self.driver(true)?;
        let options = self.redis_options(id);
        let connecting = QuorumStore::connect(&urls, options, hearing.listener(), &driver.runtime);
        let store = driver.within(self.connect_timeout * 2, connecting).await;
        let store = store.unwrap_or_else(|| Err(self.runtime_stands_still()))?;
        Ok(self.client(id, store, hearing, driver))
    }

    /// Makes a client of a new embedded store: no server, the same semantics.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an option out of bounds, [`LockError::Unavailable`] if the
    /// system grants no thread.
    pub fn in_memory(self) -> Result<LockClient, LockError> {
        self.check()?;
        #[cfg(feature = "tls")]
        self.check_tls_is_used(false)?;
        self.join(Arc::default())
    }

    /// Returns the kind of store that a URL names, after a check of the other options.
    fn kind(&self, url: &str) -> Result<Kind, LockError> {
        self.check()?;
        #[cfg(feature = "tls")]
        self.check_tls_is_used(speaks_tls(url))?;
        let scheme = Scheme::of(url).ok_or_else(|| unknown(url))?;
        if scheme.kind != Kind::Memory {
            self.check_time_of_server()?;
        }
        Ok(scheme.kind)
    }

    /// Returns the URLs of a quorum, after a check of the other options.
    fn urls<I>(&self, urls: I) -> Result<Vec<String>, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.check()?;
        self.check_time_of_server()?;
        limits::no_replicas(self.options.replicas)?;
        let urls: Vec<String> = urls.into_iter().map(Into::into).collect();
        #[cfg(feature = "tls")]
        self.check_tls_is_used(urls.iter().all(|url| speaks_tls(url)))?;
        Ok(urls)
    }

    fn check(&self) -> Result<(), LockError> {
        limits::lease("default_lease", self.options.lease)?;
        limits::wait("default_wait", self.options.wait)?;
        limits::timeout("connect_timeout", self.connect_timeout)?;
        limits::wait("connect_wait", Wait::For(self.connect_wait))?;
        limits::timeout("response_timeout", self.options.response_timeout)?;
        limits::retain(self.options.retain)?;
        limits::replicas(self.options.replicas)?;
        limits::fence_retention(self.fence_retention)?;
        limits::prefix(&self.prefix)
    }

    /// Certificates are read, and are not forgotten where they would be of no use.
    #[cfg(feature = "tls")]
    fn check_tls_is_used(&self, is_used: bool) -> Result<(), LockError> {
        self.tls.check()?;
        match self.tls.option() {
            Some(option) if !is_used => Err(LockError::InvalidOption {
                option,
                value: "(a certificate)".to_owned(),
                reason: format!("a URL does not speak of TLS; {TLS_URLS}"),
            }),
            _ => Ok(()),
        }
    }

    fn driver(&self, needs_io: bool) -> Result<Driver, LockError> {
        let driver = match &self.background {
            Background::Own => Driver::start(),
            Background::On(runtime) => {
                limits::runtime(runtime, needs_io)?;
                Driver::on(runtime.clone())
            }
            Background::TokioTime => return Ok(Driver::in_time_of(present_runtime()?)),
        };
        driver.map_err(|error| LockError::Unavailable {
            action: "start the lock client's thread".to_owned(),
            waited: Duration::ZERO,
            source: Arc::new(error),
        })
    }

    fn join(mut self, place: Arc<Place>) -> Result<LockClient, LockError> {
        limits::no_replicas(self.options.replicas)?;
        let driver = self.driver(false)?;
        if let Background::TokioTime = self.background {
            let clock = RuntimeClock(driver.runtime.clone());
            self.clock = ClientClock::given(Arc::new(clock));
        }
        let (id, hearing) = self.hearing();
        let store = MemoryStore::join(place, id, self.clock.clone(), hearing.listener());
        Ok(self.client(id, Arc::new(store), hearing, driver))
    }

    /// A new client's name, and who is told of what its store tells.
    fn hearing(&self) -> (Uuid, Hearing) {
        (client_name(), Hearing::new(&self.options, &self.clock))
    }

    fn client(
        self,
        id: Uuid,
        store: Arc<dyn Store>,
        hearing: Hearing,
        driver: Driver,
    ) -> LockClient {
        let core = Core::new(id, self.clock, self.options, store, hearing, &driver);
        drive(core, driver)
    }

    fn redis_options(&self, client: Uuid) -> RedisOptions {
        RedisOptions {
            client,
            clock: self.clock.clone(),
            prefix: self.prefix.clone(),
            fence_retention: self.fence_retention,
            tcp_nodelay: self.tcp_nodelay,
            connect_timeout: self.connect_timeout,
            response_timeout: self.options.response_timeout,
            replicas: self.options.replicas,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            #[cfg(not(feature = "tls"))]
            tls: crate::store::redis::Tls::default(),
            roster: None,
        }
    }

    async fn connect_redis(self, url: &str, kind: Kind) -> Result<LockClient, LockError> {
        use crate::store::redis::{ClusterStore, RedisStore};

        if !self.connect_wait.is_zero() {
            let wait = self.connect_wait;
            let client = self.connect_redis_lazily(url, kind)?;
            client.until_ready(wait).await?;
            return Ok(client);
        }
        let (id, hearing) = self.hearing();
        let options = self.redis_options(id);
        let driver = self.driver(true)?;
        let listener = hearing.listener();
        let runtime = &driver.runtime;
        let near = self.near();
        let connecting = async {
            let store: Arc<dyn Store> = if kind == Kind::Cluster {
                ClusterStore::connect(url, options, listener, runtime, near).await?
            } else {
                RedisStore::connect(url, options, listener, runtime, near).await?
            };
            Ok(store)
        };
        let store = driver.within(self.connect_timeout * 2, connecting).await;
        let store = store.unwrap_or_else(|| Err(self.runtime_stands_still()))?;
        Ok(self.client(id, store, hearing, driver))
    }

    /// Returns the runtime for the second connection, if the client opens one.
    fn near(&self) -> Option<Handle> {
        let (Background::Own, Ok(runtime)) = (&self.background, Handle::try_current()) else {
            return None;
        };
        let is_wanted = match self.caller_connection {
            Some(false) => false,
            Some(true) if cfg!(panic = "abort") => true,
            Some(true) | None => drive_connections(&runtime),
        };
        is_wanted.then_some(runtime)
    }

    fn runtime_stands_still(&self) -> LockError {
        StoreError::stands_still().into_lock_error("connect".to_owned(), self.connect_timeout * 2)
    }

    /// Refuses `tokio_time` for a server, whose leases end by the server's clock.
    fn check_time_of_server(&self) -> Result<(), LockError> {
        match self.background {
            Background::TokioTime => Err(no_tokio_time(
                "a server's leases end by its own clock; use the embedded store, or leave the option out",
            )),
            Background::Own | Background::On(_) => Ok(()),
        }
    }
}

/// Returns the runtime that the client is made in, for its clock.
fn present_runtime() -> Result<Handle, LockError> {
    Handle::try_current().map_err(|_| {
        no_tokio_time(
            "there is no Tokio runtime here; make the client inside of one, as in `#[tokio::test]`",
        )
    })
}

fn no_tokio_time(reason: &str) -> LockError {
    LockError::InvalidOption {
        option: "tokio_time",
        value: "true".to_owned(),
        reason: reason.to_owned(),
    }
}

fn drive(core: Core, driver: Driver) -> LockClient {
    let core = Arc::new(core);
    clients::register(&core);
    let stop = driver.drive(Arc::clone(&core));
    LockClient::new(core, stop)
}

#[cfg(feature = "tls")]
fn speaks_tls(url: &str) -> bool {
    Scheme::of(url).is_some_and(|scheme| scheme.tls)
}

/// Returns the embedded store that a URL names.
fn embedded(url: &str) -> Result<Arc<Place>, LockError> {
    let (_, name) = url.split_once(':').unwrap_or_default();
    if name.starts_with("//") {
        let reason = "the embedded store has no host; expected `memory:` or `memory:name`";
        return Err(limits::invalid_url(url, reason.to_owned()));
    }
    Ok(match name {
        "" => Arc::default(),
        name => Place::named(name),
    })
}

fn unknown(url: &str) -> LockError {
    limits::invalid_url(url, format!("expected one of {}", known(|_| true)))
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
