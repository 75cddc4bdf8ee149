//! How a client is set up.

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;
use uuid::Uuid;

#[cfg(feature = "redis")]
use crate::store::redis::RedisOptions;
use crate::{
    client::LockClient,
    clock::{ClientClock, Clock},
    core::{Core, Hearing},
    driver::Driver,
    error::LockError,
    limits,
    options::{Options, Reentry, Replicas, Wait},
    owner::client_name,
    store::{
        Store,
        memory::{MemoryStore, Place},
    },
};

#[cfg(feature = "tls")]
use crate::store::redis::{Tls, speaks_tls};

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
    options: Options,
    connect_timeout: Duration,
    tcp_nodelay: bool,
    runtime: Option<Handle>,
    clock: ClientClock,
    #[cfg(feature = "tls")]
    tls: Tls,
}

impl Default for LockClientBuilder {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            options: Options {
                lease: Duration::from_secs(30),
                wait: Wait::For(Duration::from_secs(10)),
                watchdog: true,
                reentry: Reentry::default(),
                local_handovers: 16,
                response_timeout: Duration::from_secs(2),
                replicas: None,
            },
            connect_timeout: Duration::from_secs(5),
            tcp_nodelay: true,
            runtime: None,
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

    /// How many callers of this process may have a lock in a row while other processes wait for it: 16
    /// unless said otherwise. Only those count who already waited when the lock came to the process:
    /// they may come before another process that asked earlier than they did, and whoever asks later
    /// waits until that process was served. Handing over within a process takes about half the time
    /// that it takes between two; 0 serves processes strictly in the order in which they came.
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
    /// That saves a thread and gives up what it is for: while the runtime is blocked, or after it
    /// was shut down, nothing is renewed or released.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
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
    /// `?protocol=resp2` keeps a server that speaks RESP3 on RESP2. `valkey://`, `valkeys://` and
    /// `redis+unix://` are other names of `redis://`, `rediss://` and `unix://`.
    ///
    /// A server that cannot be reached is not tried again. One that was reached once is: from then on
    /// the client connects again by itself.
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
    #[cfg_attr(
        not(feature = "redis"),
        expect(
            clippy::unused_async,
            reason = "servers are awaited, the embedded store is not"
        )
    )]
    pub async fn connect(self, url: &str) -> Result<LockClient, LockError> {
        self.check()?;
        #[cfg(feature = "tls")]
        self.check_tls_is_used(speaks_tls(url))?;
        match url.split_once(':') {
            Some(("memory", "")) => self.join(Arc::default()),
            Some(("memory", name)) => self.join(Place::named(name)),
            #[cfg(feature = "redis")]
            Some((
                "redis" | "rediss" | "unix" | "redis+unix" | "valkey" | "valkeys"
                | "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster",
                _,
            )) => self.connect_redis(url).await,
            _ => Err(limits::invalid_url(
                url,
                format!("expected one of {KNOWN_URLS}"),
            )),
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
    #[cfg(feature = "redis")]
    pub async fn quorum<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        use crate::store::quorum::QuorumStore;

        self.check()?;
        limits::no_replicas(self.options.replicas)?;
        let urls: Vec<String> = urls.into_iter().map(Into::into).collect();
        #[cfg(feature = "tls")]
        self.check_tls_is_used(urls.iter().all(|url| speaks_tls(url)))?;
        let (id, hearing) = self.hearing();
        let driver = self.driver()?;
        let options = self.redis_options(id);
        let store =
            QuorumStore::connect(&urls, options, hearing.listener(), &driver.runtime).await?;
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

    fn check(&self) -> Result<(), LockError> {
        limits::lease("default_lease", self.options.lease)?;
        limits::wait("default_wait", self.options.wait)?;
        limits::timeout("connect_timeout", self.connect_timeout)?;
        limits::timeout("response_timeout", self.options.response_timeout)?;
        limits::replicas(self.options.replicas)?;
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

    fn driver(&self) -> Result<Driver, LockError> {
        match &self.runtime {
            Some(runtime) => Ok(Driver::on(runtime.clone())),
            None => Driver::start().map_err(|error| LockError::Unavailable {
                action: "start the lock client's thread".to_owned(),
                waited: Duration::ZERO,
                source: Arc::new(error),
            }),
        }
    }

    fn join(self, place: Arc<Place>) -> Result<LockClient, LockError> {
        limits::no_replicas(self.options.replicas)?;
        let driver = self.driver()?;
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
        let runtime = driver.runtime.clone();
        let core = Core::new(id, self.clock, self.options, store, hearing, runtime);
        drive(core, driver)
    }

    #[cfg(feature = "redis")]
    fn redis_options(&self, client: Uuid) -> RedisOptions {
        RedisOptions {
            client,
            clock: self.clock.clone(),
            prefix: self.prefix.clone(),
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

    #[cfg(feature = "redis")]
    async fn connect_redis(self, url: &str) -> Result<LockClient, LockError> {
        use crate::store::redis::{ClusterStore, RedisStore, is_cluster};

        let (id, hearing) = self.hearing();
        let options = self.redis_options(id);
        let driver = self.driver()?;
        let listener = hearing.listener();
        let own_runtime = self.runtime.is_none();
        let runtime = &driver.runtime;
        let store: Arc<dyn Store> = if is_cluster(url) {
            ClusterStore::connect(url, options, listener, runtime, own_runtime).await?
        } else {
            RedisStore::connect(url, options, listener, runtime, own_runtime).await?
        };
        Ok(self.client(id, store, hearing, driver))
    }
}

fn drive(core: Core, driver: Driver) -> LockClient {
    let core = Arc::new(core);
    let stop = driver.drive(Arc::clone(&core));
    LockClient::new(core, stop)
}

#[cfg(feature = "redis")]
const KNOWN_URLS: &str = "`redis://`, `rediss://`, `redis-sentinel://`, `rediss-sentinel://`, `redis-cluster://`, \
     `rediss-cluster://`, `unix://`, `memory:`";
#[cfg(not(feature = "redis"))]
const KNOWN_URLS: &str = "`memory:` (the feature `redis` of rlock-core adds servers)";

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("prefix", &self.prefix)
            .field("options", &self.options)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
