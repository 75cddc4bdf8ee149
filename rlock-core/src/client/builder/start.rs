//! Makes a client of the builder's options.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;
use uuid::Uuid;

use super::{Background, LockClientBuilder};
use crate::{
    client::LockClient,
    clock::{ClientClock, RuntimeClock},
    drivers::drive_connections,
    engine::{
        core::{Core, EventHandler},
        driver::Driver,
    },
    error::LockError,
    limits,
    store::{
        Store, StoreError,
        cluster::ClusterStore,
        credentials::Provider,
        endpoint::Endpoint,
        memory::{MemoryStore, SharedStore},
        quorum::{QuorumStore, named_twice},
        redis::{RedisOptions, RedisStore, connecting},
    },
};

impl LockClientBuilder {
    pub(super) async fn connect_to(self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        if let Endpoint::Memory(_) = endpoint {
            return self.start(endpoint);
        }
        let (connect_wait, connect_timeout) = (self.connect_wait, self.redis.connect_timeout);
        let (core, driver) = self.prepare(endpoint)?;
        if connect_wait.is_zero() {
            connect(&core, &driver.runtime, connect_timeout * 2).await?;
            return Ok(LockClient::new(driver.drive(core)));
        }
        let client = LockClient::new(driver.drive(core));
        client.until_ready(connect_wait).await?;
        Ok(client)
    }

    /// Makes a client that connects in the background.
    pub(super) fn start(self, endpoint: Endpoint) -> Result<LockClient, LockError> {
        let (core, driver) = self.prepare(endpoint)?;
        Ok(LockClient::new(driver.drive(core)))
    }

    /// Makes a client whose background does not run yet.
    fn prepare(mut self, endpoint: Endpoint) -> Result<(Core, Driver), LockError> {
        self.check_for(&endpoint)?;
        let needs_io = !matches!(endpoint, Endpoint::Memory(_));
        let driver = self.driver(needs_io)?;
        if let Background::TokioTime = self.background {
            let clock = RuntimeClock(driver.runtime.clone());
            self.redis.clock = ClientClock::given(Arc::new(clock));
        }
        let id = Uuid::new_v4();
        let handler = EventHandler::new(&self.options, &self.redis.clock);
        let options = RedisOptions {
            client: id,
            response_timeout: self.options.response_timeout,
            replicas: self.options.replicas,
            ..self.redis.clone()
        };
        let (listener, runtime) = (handler.listener(), &driver.runtime);
        let store: Arc<dyn Store> = match endpoint {
            Endpoint::Memory(name) => {
                let shared = match name.as_str() {
                    "" => Arc::default(),
                    name => SharedStore::named(name),
                };
                Arc::new(MemoryStore::join(
                    shared,
                    id,
                    self.redis.clock.clone(),
                    listener,
                ))
            }
            Endpoint::Server(server) => {
                RedisStore::of(server, &options, &listener, self.caller_runtime().as_ref())
            }
            Endpoint::Cluster(cluster) => {
                ClusterStore::new(cluster, options, listener, runtime, self.caller_runtime())
            }
            Endpoint::Quorum(servers) => Arc::new(QuorumStore::new(&servers, options, listener)),
        };
        let timers = (driver.timers.clone(), driver.may_not_be_driven());
        let core = Core::new(id, self.redis.clock, self.options, store, handler, timers);
        Ok((core, driver))
    }

    /// Checks all options, and whether this store supports them.
    fn check_for(&self, endpoint: &Endpoint) -> Result<(), LockError> {
        self.check()?;
        self.redis.connection.tls.check(endpoint.uses_tls())?;
        if self.redis.connection.credentials.is_some() {
            Provider::check(endpoint.servers())?;
        }
        let is_memory = matches!(endpoint, Endpoint::Memory(_));
        if matches!(self.background, Background::TokioTime) && !is_memory {
            return Err(no_tokio_time(
                "a server's leases end by its own clock; use the embedded store, or leave the option out",
            ));
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
                return Ok(Driver::on_clock_of(runtime));
            }
        };
        driver.map_err(|error| LockError::Unavailable {
            action: "start the lock client's thread".to_owned(),
            waited: Duration::ZERO,
            source: Arc::new(error),
        })
    }

    /// Returns the runtime for the second connection, if the client opens one.
    fn caller_runtime(&self) -> Option<Handle> {
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

/// Connects to the store. `limit` counts only if the background is on a runtime that may not be driven. The call then
/// fails after that time.
async fn connect(core: &Core, runtime: &Handle, limit: Duration) -> Result<(), LockError> {
    let started = core.clock.now();
    let connecting = connecting(runtime.spawn(Arc::clone(&core.store).connect()));
    // Boxed, so that the futures of callers stay small.
    let connected = core.in_runtime_within(Some(limit), Box::pin(connecting));
    let connected = connected
        .await
        .unwrap_or_else(|| Err(StoreError::not_driven()));
    connected.map_err(|error| {
        let action = format!("connect to {}", core.store.describe());
        named_twice(&error)
            .unwrap_or_else(|| error.into_lock_error(action, core.clock.now().since(started)))
    })
}

fn no_tokio_time(reason: &str) -> LockError {
    LockError::invalid_option("tokio_time", "true", reason)
}
