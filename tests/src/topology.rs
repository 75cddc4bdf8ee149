//! What locks can live on: one place where all of it is listed, with the servers that it takes.

mod trio;

use std::sync::atomic::{AtomicU32, Ordering};

use rlock_core::{LockClient, LockClientBuilder};

use crate::{RedisCluster, RedisServer};
pub use trio::{FAILOVER, SERVICE, Trio};

/// What the same tests run over.
///
/// Its servers end with it; as it usually is shared by the tests of a binary, that is when the test process
/// ends, however it ends.
#[derive(Debug)]
pub enum Topology {
    /// The embedded store.
    Memory,
    /// One server, spoken to by RESP3.
    Server(RedisServer),
    /// One server, spoken to by RESP2: without news of changes, and with a second connection for messages.
    ServerByResp2(RedisServer),
    /// A master and its replica, and three Sentinels that tell which is which.
    Sentinel(Box<Trio>),
    /// Three masters with a replica each, that share the locks.
    Cluster(RedisCluster),
}

impl Topology {
    /// The embedded store.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory
    }

    /// Starts one server, for RESP3.
    #[must_use]
    pub fn server() -> Self {
        Self::Server(RedisServer::start())
    }

    /// Starts one server, for RESP2.
    #[must_use]
    pub fn server_by_resp2() -> Self {
        Self::ServerByResp2(RedisServer::start())
    }

    /// Starts a master, its replica and three Sentinels.
    pub async fn sentinel() -> Self {
        Self::Sentinel(Box::new(Trio::start().await))
    }

    /// Starts three masters of a cluster, and a replica of each.
    pub async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }
}

/// Locks of their own at a topology: tests that share it do not meet.
#[derive(Debug)]
pub struct Place {
    topology: &'static Topology,
    name: String,
}

impl Place {
    /// A place where nobody was before.
    #[must_use]
    pub fn at(topology: &'static Topology) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            topology,
            name: format!("place-{number}:"),
        }
    }

    /// What the place is at.
    #[must_use]
    pub fn topology(&self) -> &'static Topology {
        self.topology
    }

    /// A client with the default options.
    pub async fn client(&self) -> LockClient {
        self.client_of(LockClient::builder()).await
    }

    /// A client that is set up like this, but for the prefix.
    pub async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        let builder = builder.prefix(&self.name);
        let connected = match self.topology {
            // A prefix says nothing to it.
            Topology::Memory => builder.connect(&format!("memory:{}", self.name)).await,
            Topology::Server(server) => builder.connect(&server.url()).await,
            Topology::ServerByResp2(server) => {
                let url = format!("{}?protocol=resp2", server.url());
                builder.connect(&url).await
            }
            Topology::Sentinel(trio) => builder.connect(&trio.url()).await,
            Topology::Cluster(cluster) => builder.connect(&cluster.url()).await,
        };
        connected.expect("the store is there")
    }
}
