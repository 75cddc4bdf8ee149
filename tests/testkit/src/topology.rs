//! What locks can live on: one place where all of it is listed, with the servers that it takes.

mod fronted;
mod trio;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder};

use crate::{RedisCluster, RedisServer};
pub use fronted::Fronted;
pub use trio::{FAILOVER, SERVICE, Trio, TrioBuilder};

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
    /// One server, spoken to by RESP2: without reports of changes, and with a second connection for messages.
    ServerByResp2(RedisServer),
    /// A master and its replica, and three Sentinels that tell which is which.
    Sentinel(Box<Trio>),
    /// Servers that know nothing of each other.
    Quorum {
        /// All of them.
        servers: Vec<RedisServer>,
        /// Which of them are paused.
        stopped: Vec<usize>,
    },
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
        // On a busy machine a server may be silent for a while, and none of these tests is about that.
        let silence = Duration::from_secs(10);
        Self::Sentinel(Box::new(Trio::builder().silence(silence).start().await))
    }
}

/// What becomes of a lock that another client deletes on the server, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Nobody else can.
    Impossible,
    /// The server tells the holder.
    NotifiedAtOnce,
    /// The holder finds out when it renews its lease.
    FoundByRenewal,
}

/// What topologies do differently by nature. The suite asks for it, and checks it.
impl Topology {
    /// How a holder learns that its lock was deleted.
    #[must_use]
    pub fn deletion(&self) -> Deletion {
        match self {
            Self::Memory => Deletion::Impossible,
            Self::Server(_) | Self::Sentinel(_) | Self::Quorum { .. } | Self::Cluster(_) => {
                Deletion::NotifiedAtOnce
            }
            Self::ServerByResp2(_) => Deletion::FoundByRenewal,
        }
    }

    /// Who has this lock, as far as it goes on.
    async fn servers_of(&self, lock: &str) -> Vec<&RedisServer> {
        match self {
            Self::Cluster(cluster) => vec![cluster.owner_of(lock).await],
            Self::Memory => Vec::new(),
            Self::Server(server) | Self::ServerByResp2(server) => vec![server],
            Self::Sentinel(trio) => vec![&trio.master],
            Self::Quorum { servers, stopped } => {
                let running = |(n, server)| (!stopped.contains(&n)).then_some(server);
                servers.iter().enumerate().filter_map(running).collect()
            }
        }
    }

    /// A client that is set up like this, of those that share this memory, if it is the embedded store.
    async fn client_of(&self, builder: LockClientBuilder, memory: &str) -> LockClient {
        let connected = match self {
            Self::Memory => builder.connect(&format!("memory:{memory}")).await,
            Self::Server(server) => builder.connect(&url(server)).await,
            Self::ServerByResp2(server) => {
                let url = format!("{}?protocol=resp2", url(server));
                builder.connect(&url).await
            }
            Self::Sentinel(trio) => builder.connect(&trio.url()).await,
            Self::Quorum { servers, .. } => builder.quorum(servers.iter().map(url)).await,
            Self::Cluster(cluster) => builder.connect(&cluster.url()).await,
        };
        connected.expect("the store is there")
    }

    /// Starts five servers that know nothing of each other; these of them are paused.
    #[must_use]
    pub fn quorum_without(stopped: &[usize]) -> Self {
        let servers: Vec<_> = (0..5).map(|_| RedisServer::start()).collect();
        for server in stopped {
            servers[*server].pause();
        }
        Self::Quorum {
            servers,
            stopped: stopped.to_vec(),
        }
    }

    /// Starts three masters of a cluster, and a replica of each.
    pub async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }
}

/// Where clients find a server: at its proxy, if it stands behind one.
fn url(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}/", server.announced_port())
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

    /// Whether waiters are served in order however slow a server is. On a quorum, only while the member that keeps the
    /// queue replies in time.
    #[must_use]
    pub fn keeps_strict_order(&self) -> bool {
        !matches!(self.topology, Topology::Quorum { .. })
    }

    /// Deletes the lock of a key without braces behind its holder's back. Says whether there was one.
    pub async fn delete(&self, key: &str) -> bool {
        let lock = format!("{}{{{key}}}", self.name);
        // At once, because those that still have a lock give it to those that have lost it.
        let servers = self.topology.servers_of(&lock).await;
        let deleted = join_all(servers.into_iter().map(|server| server.del(&lock))).await;
        deleted.contains(&true)
    }

    /// Returns a client with the default options, and so with a connection on the current runtime.
    pub async fn client(&self) -> LockClient {
        self.client_of(LockClient::builder()).await
    }

    /// A client that is set up like this, but for the prefix.
    pub async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        let builder = builder.prefix(&self.name);
        self.topology.client_of(builder, &self.name).await
    }
}
