//! The ways to make a client.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;
use uuid::Uuid;

use super::{Background, LockClientBuilder};
use crate::{
    blocking::block_on,
    client::LockClient,
    clock::{ClientClock, RuntimeClock},
    drivers::drive_connections,
    engine::{
        clients,
        core::{Core, EventHandler},
        driver::Driver,
    },
    error::LockError,
    hidden, limits,
    store::{
        Store, StoreError,
        cluster::ClusterStore,
        endpoint::{Endpoint, redacted},
        memory::{MemoryStore, SharedStore},
        quorum::QuorumStore,
        redis::{RedisOptions, RedisStore},
    },
};

impl LockClientBuilder {
    /// Connects to the store that the URL names.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server |
    /// | `rediss://…` | the same over TLS (feature `tls`) |
    /// | `unix:///path/to/socket[?db=0&user=…&pass=…]` | the same over a Unix socket |
    /// | `redis-sentinel://[user:password@]host[:port],host[:port],…/service[/database]` | the master that these Sentinels know. The client asks again when a connection is lost, or the server was demoted. User and password are the master's; `?sentinel_user=…&sentinel_password=…` are for the Sentinels |
    /// | `rediss-sentinel://…` | the same over TLS, to the Sentinels too |
    /// | `redis-cluster://[user:password@]host[:port],host[:port],…` | the Redis Cluster to which these nodes belong. The client learns the other nodes from them |
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
    /// [`LockError::InvalidOption`] for an invalid URL or option. [`LockError::Unavailable`] if no
    /// server replies within the connect time-out. [`LockError::Store`] if the server refuses the
    /// client.
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
        self.connect_to(Endpoint::parse(url)?).await
    }

    /// Connects to a quorum of independent servers; see [`LockClient::quorum`].
    ///
    /// # Errors
    ///
    /// As [`LockClient::quorum`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn quorum<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.connect_to(Endpoint::quorum(urls)?).await
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
    pub fn connect_lazy(self, url: &str) -> Result<LockClient, LockError> {
        self.start(Endpoint::parse(url)?)
    }

    /// Makes a client of a [`quorum`](Self::quorum), without waiting for its servers, as
    /// [`connect_lazy`](Self::connect_lazy).
    ///
    /// This method cannot refuse two addresses of the same server. The client detects them once
    /// connected, logs an error, and does not count the second.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a list that is empty, has more than 32 URLs or repeats an
    /// address, and for an invalid URL or option. [`LockError::Unavailable`] if the system cannot
    /// start a thread.
    pub fn quorum_lazy<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.start(Endpoint::quorum(urls)?)
    }

    /// Connects from synchronous code, as [`connect`](Self::connect). Blocks the thread until the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`LockError::WouldBlock`] inside an async task.
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
    pub fn quorum_blocking<I>(self, urls: I) -> Result<LockClient, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        block_on(|| "connect to a quorum".to_owned(), self.quorum(urls))?
    }

    /// Makes a client of a new embedded store, which has the semantics of a server within this
    /// process.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an option out of bounds, [`LockError::Unavailable`] if the
    /// system cannot start a thread.
    pub fn in_memory(self) -> Result<LockClient, LockError> {
        self.start(Endpoint::Memory(String::new()))
    }

    async fn connect_to(self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        if !self.connect_wait.is_zero() {
            let wait = self.connect_wait;
            let client = self.start(endpoint)?;
            client.until_ready(wait).await?;
            return Ok(client);
        }
        if let Endpoint::Memory(_) = endpoint {
            return self.start(endpoint);
        }
        self.check_for(&endpoint)?;
        let driver = self.driver(true)?;
        let (id, handler) = self.event_handler();
        let options = self.redis_options(id);
        let (listener, runtime) = (handler.listener(), &driver.runtime);
        // Not inside `connecting`, which is polled on the client's own runtime.
        let near = match endpoint {
            Endpoint::Server(_) | Endpoint::Cluster(_) => self.near(),
            Endpoint::Memory(_) | Endpoint::Quorum(_) => None,
        };
        // Boxed, so that the futures of callers stay small.
        let connecting = Box::pin(async {
            let store: Arc<dyn Store> = match endpoint {
                Endpoint::Memory(_) => unreachable!("it needs no connection"),
                Endpoint::Server(server) => {
                    RedisStore::connect(server, &options, &listener, runtime, near.as_ref()).await?
                }
                Endpoint::Cluster(cluster) => {
                    ClusterStore::connect(cluster, options, listener, runtime, near).await?
                }
                Endpoint::Quorum(servers) => {
                    QuorumStore::connect(&servers, options, listener, runtime).await?
                }
            };
            Ok(store)
        });
        let limit = self.connect_timeout * 2;
        let store = driver.within(limit, connecting).await;
        let store = store.unwrap_or_else(|| {
            Err(StoreError::stands_still().into_lock_error("connect".to_owned(), limit))
        })?;
        Ok(self.client(id, store, handler, driver))
    }

    /// Makes a client that connects in the background.
    fn start(mut self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        self.check_for(&endpoint)?;
        let needs_io = !matches!(endpoint, Endpoint::Memory(_));
        let driver = self.driver(needs_io)?;
        if let Background::TokioTime = self.background {
            let clock = RuntimeClock(driver.runtime.clone());
            self.clock = ClientClock::given(Arc::new(clock));
        }
        let (id, handler) = self.event_handler();
        let options = self.redis_options(id);
        let (listener, runtime) = (handler.listener(), &driver.runtime);
        let store: Arc<dyn Store> = match endpoint {
            Endpoint::Memory(name) => {
                let shared = match name.as_str() {
                    "" => Arc::default(),
                    name => SharedStore::named(name),
                };
                Arc::new(MemoryStore::join(shared, id, self.clock.clone(), listener))
            }
            Endpoint::Server(server) => {
                RedisStore::lazy(server, &options, &listener, self.near().as_ref())
            }
            Endpoint::Cluster(cluster) => {
                ClusterStore::lazy(cluster, options, listener, runtime, self.near())
            }
            Endpoint::Quorum(servers) => Arc::new(QuorumStore::lazy(&servers, options, listener)?),
        };
        Ok(self.client(id, store, handler, driver))
    }

    /// Checks all options, and whether this store supports them.
    fn check_for(&self, endpoint: &Endpoint) -> Result<(), LockError> {
        self.check()?;
        #[cfg(feature = "tls")]
        {
            self.tls.check()?;
            if let Some(option) = self.tls.option()
                && !endpoint.uses_tls()
            {
                return Err(limits::unused_certificate(option));
            }
        }
        match (endpoint, &self.background) {
            (Endpoint::Memory(_), _) | (_, Background::Own | Background::On(_)) => {}
            _ => {
                return Err(no_tokio_time(
                    "a server's leases end by its own clock; use the embedded store, or leave the option out",
                ));
            }
        }
        match endpoint {
            Endpoint::Memory(_) | Endpoint::Quorum(_) => limits::no_replicas(self.options.replicas),
            Endpoint::Server(_) | Endpoint::Cluster(_) => Ok(()),
        }
    }

    fn driver(&self, needs_io: bool) -> Result<Driver, LockError> {
        let driver = match &self.background {
            Background::Own => Driver::start(),
            Background::On(runtime) => {
                limits::runtime(runtime, needs_io)?;
                Driver::on(runtime.clone())
            }
            Background::TokioTime => {
                let runtime = Handle::try_current().map_err(|_| {
                    no_tokio_time(
                        "there is no Tokio runtime here; make the client inside of one, as in `#[tokio::test]`",
                    )
                })?;
                return Ok(Driver::in_time_of(runtime));
            }
        };
        driver.map_err(|error| LockError::Unavailable {
            action: "start the lock client's thread".to_owned(),
            waited: Duration::ZERO,
            source: Arc::new(error),
        })
    }

    /// Returns the name of a new client, and the receiver of its store's notifications.
    fn event_handler(&self) -> (Uuid, EventHandler) {
        (
            Uuid::new_v4(),
            EventHandler::new(&self.options, &self.clock),
        )
    }

    fn client(
        self,
        id: Uuid,
        store: Arc<dyn Store>,
        handler: EventHandler,
        driver: Driver,
    ) -> LockClient {
        let timers = (driver.timers.clone(), driver.may_stand_still());
        hidden::note(self.options.redact_keys);
        let core = Core::new(id, self.clock, self.options, store, handler, timers);
        let handle = driver.drive(core);
        clients::register(handle.core());
        LockClient::new(handle)
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
            server: 0,
            run_ids: None,
        }
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
}

fn no_tokio_time(reason: &str) -> LockError {
    LockError::InvalidOption {
        option: "tokio_time",
        value: "true".to_owned(),
        reason: reason.to_owned(),
    }
}
