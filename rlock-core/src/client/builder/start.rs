//! Builds the client: checks its options, makes its store, and starts its background.

use std::sync::Arc;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::LockClientBuilder;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresStore;
use crate::{
    blocking::block_on,
    client::LockClient,
    drivers::drives_connections,
    engine::{core, core::Core, driver::ClientHandle, shell::Shell},
    error::LockError,
    limits,
    store::{
        Store,
        cluster::ClusterStore,
        credentials,
        endpoint::Endpoint,
        memory::{MemoryStore, SharedStore},
        options::StoreOptions,
        quorum::{QuorumStore, named_twice},
        redis::RedisStore,
        tasks::connecting,
    },
    store_url::StoreUrl,
};

impl LockClientBuilder {
    /// Connects to a store. [`StoreUrl`] lists the URLs.
    ///
    /// The client tries an unreachable server only once, unless [`connect_retry_for`](Self::connect_retry_for) is
    /// set. It tries a server that is a replica again within the [`connect_timeout`](Self::connect_timeout), because
    /// a balancer or the Sentinels may lead the next connection to the master. A [quorum](StoreUrl::quorum) needs a
    /// majority of its servers. Once connected, the client reconnects by itself. Use
    /// [`connect_lazy`](Self::connect_lazy) not to wait for the servers at all.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an invalid URL or option. [`LockError::Unavailable`] if no
    /// server replies within the connect time-out. [`LockError::Refused`] if the server refuses the
    /// client, or if the client does not trust the authority of the server's certificate.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn connect(self, store: impl Into<StoreUrl>) -> Result<LockClient, LockError> {
        self.connect_to(store.into()).await
    }

    /// Makes a client without waiting for its servers. The client connects in the background and
    /// retries until the servers can be reached, so a service starts without them. [`StoreUrl`] lists
    /// the URLs.
    ///
    /// An acquire waits for the connection within its `wait`, then returns [`LockError::Unavailable`]. With a `wait`
    /// of zero, as with [`try_acquire`](crate::Lock::try_acquire), it waits within the
    /// [`response_timeout`](Self::response_timeout) instead. If a server refuses the client, for example because of a
    /// wrong password, the acquire returns [`LockError::Refused`] as soon as that is known. [`LockClient::ping`]
    /// reports whether the client is connected. The client logs a warning for each server that it cannot reach at
    /// first.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an invalid URL or option, [`LockError::Unavailable`] if the
    /// system cannot start a thread.
    pub fn connect_lazy(self, store: impl Into<StoreUrl>) -> Result<LockClient, LockError> {
        self.start(store.into().endpoint()?)
    }

    /// Connects from synchronous code, like [`connect`](Self::connect). Blocks the thread until the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// Same as [`connect`](Self::connect), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
    pub fn connect_blocking(self, store: impl Into<StoreUrl>) -> Result<LockClient, LockError> {
        let store = store.into();
        let action = format!("connect to `{store}`");
        block_on(|| action, self.connect_to(store))?
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

    pub(in crate::client) async fn connect_to(
        self,
        store: StoreUrl,
    ) -> Result<LockClient, LockError> {
        let endpoint = store.endpoint()?;
        drop(store);
        self.open(endpoint).await
    }

    /// Makes a client that is connected.
    pub(super) async fn open(self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        let connect_retry_for = self.connect_retry_for;
        // The embedded store has nothing to connect to, so its only question is whether it replies.
        let is_embedded = matches!(endpoint, Endpoint::Memory(_));
        let core = self.prepare(endpoint)?;
        if connect_retry_for.is_zero() && !is_embedded {
            connect(&core).await?;
            return Ok(LockClient::new(ClientHandle::start(core)));
        }
        let client = LockClient::new(ClientHandle::start(core));
        client.until_ready(connect_retry_for).await?;
        Ok(client)
    }

    /// Makes a client that connects in the background.
    fn start(self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        let core = self.prepare(endpoint)?;
        Ok(LockClient::new(ClientHandle::start(core)))
    }

    /// Makes a client whose background does not run yet.
    fn prepare(mut self, endpoint: Endpoint) -> Result<Core, LockError> {
        self.check_for(&endpoint)?;
        let (thread, clock) = self.clock.start()?;
        self.store.clock = clock;
        let id = Uuid::new_v4();
        let needs_majority = matches!(endpoint, Endpoint::Quorum(_));
        let clock = self.store.clock.clone();
        let shell = Arc::new(Shell::new(id, &self.options, clock, needs_majority));
        let options = StoreOptions {
            client: id,
            floor: Arc::default(),
            response_timeout: self.options.response_timeout,
            fence_retention: self.options.fence_retention,
            replicas: self.options.replicas,
            ..self.store.clone()
        };
        let (listener, runtime) = (core::listener(Arc::clone(&shell), id), &thread.runtime);
        let store: Arc<dyn Store> = match endpoint {
            Endpoint::Memory(name) => {
                let shared = match name.as_str() {
                    "" => Arc::default(),
                    name => SharedStore::named(name),
                };
                let clock = self.store.clock.clone();
                #[cfg(feature = "testing")]
                shared.check_clock(&name, &clock)?;
                Arc::new(MemoryStore::join(shared, id, clock, listener))
            }
            Endpoint::Server(server) => {
                RedisStore::of(server, &options, &listener, self.caller_runtime().as_ref())
            }
            #[cfg(feature = "postgres")]
            Endpoint::Postgres(database) => PostgresStore::of(database, &options, &listener),
            Endpoint::Cluster(cluster) => {
                ClusterStore::new(cluster, options, listener, runtime, self.caller_runtime())
            }
            Endpoint::Quorum(servers) => {
                let is_held = core::is_held(Arc::clone(&shell));
                Arc::new(QuorumStore::new(&servers, options, listener, is_held))
            }
        };
        let clock = self.store.clock;
        let options = (self.options, needs_majority);
        Ok(Core::new(id, clock, options, store, shell, thread))
    }

    /// Checks all options, and whether this store supports them.
    pub(super) fn check_for(&self, endpoint: &Endpoint) -> Result<(), LockError> {
        self.check()?;
        #[cfg(feature = "testing")]
        self.clock.check(endpoint)?;
        self.store.connection.tls.check(endpoint.uses_tls())?;
        if self.store.connection.credentials.is_some() {
            credentials::check(endpoint)?;
        }
        match endpoint {
            Endpoint::Memory(_) | Endpoint::Quorum(_) => limits::no_replicas(self.options.replicas),
            #[cfg(feature = "postgres")]
            Endpoint::Postgres(_) => limits::no_replicas(self.options.replicas),
            Endpoint::Server(_) | Endpoint::Cluster(_) => Ok(()),
        }
    }

    /// Returns the runtime for the second connection, if the client opens one.
    fn caller_runtime(&self) -> Option<Handle> {
        let runtime = Handle::try_current().ok();
        runtime.filter(|runtime| self.second_connection && drives_connections(runtime))
    }
}

async fn connect(core: &Core) -> Result<(), LockError> {
    let started = core.clock.now();
    let connected = core.thread.runtime.spawn(Arc::clone(&core.store).connect());
    // Boxed, so that the futures of callers stay small.
    let connected = core.in_runtime(Box::pin(connecting(connected))).await;
    connected.map_err(|error| {
        let action = format!("connect to {}", core.store.describe());
        named_twice(&error)
            .unwrap_or_else(|| error.into_lock_error(action, core.clock.now().since(started)))
    })
}
