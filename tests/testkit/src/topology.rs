//! The topologies that tests run on: memory, one server, Sentinel, Cluster, quorum, Postgres.

mod fronted;
mod server;
mod trio;

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder, StoreUrl};

use crate::{PATIENCE, Pooler, PostgresServer, RedisCluster, RedisServer};
pub use fronted::Fronted;
use server::Server;
pub use trio::{FAILOVER, SERVICE, Trio, TrioBuilder};

/// A store that the same tests run over.
///
/// Its servers end with it. The tests of a binary usually share it, so they end with the test
/// process.
#[derive(Debug)]
pub enum Topology {
    /// The embedded store.
    Memory,
    /// One server, over RESP3.
    Server(RedisServer),
    /// One server, over RESP2: without client tracking, and with a second connection for messages.
    ServerByResp2(RedisServer),
    /// A master, its replica and three Sentinels.
    Sentinel(Box<Trio>),
    /// Independent servers.
    Quorum {
        /// All servers.
        servers: Vec<RedisServer>,
        /// The indices of the paused servers.
        stopped: Vec<usize>,
    },
    /// Three masters that share the locks, with a replica each.
    Cluster(RedisCluster),
    /// A Postgres database.
    Postgres(PostgresServer),
    /// A Postgres database behind a pooler of transactions.
    Pooled {
        /// The server.
        server: PostgresServer,
        /// The pooler.
        pooler: Pooler,
        /// Whether clients know the server, too.
        direct: bool,
    },
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
}

/// Differences between topologies, which the suite reads and checks.
impl Topology {
    /// Returns whether waiters are served in order. A quorum has no queue.
    #[must_use]
    pub fn keeps_strict_order(&self) -> bool {
        !matches!(self, Self::Quorum { .. })
    }

    /// Returns the running servers that have this lock.
    async fn servers_of(&self, lock: &str) -> Vec<Server<'_>> {
        match self {
            Self::Memory => Vec::new(),
            Self::Postgres(server) | Self::Pooled { server, .. } => {
                vec![Server::Postgres(server)]
            }
            Self::Cluster(cluster) => vec![Server::Redis(cluster.owner_of(lock).await)],
            Self::Server(server) | Self::ServerByResp2(server) => vec![Server::Redis(server)],
            Self::Sentinel(trio) => vec![Server::Redis(&trio.master)],
            Self::Quorum { servers, stopped } => {
                let running =
                    |(n, server)| (!stopped.contains(&n)).then_some(Server::Redis(server));
                servers.iter().enumerate().filter_map(running).collect()
            }
        }
    }

    /// Returns a client with these options. Clients of the embedded store share this memory.
    async fn client_of(&self, builder: LockClientBuilder, memory: &str) -> LockClient {
        let connected = match self {
            Self::Memory => builder.connect(&format!("memory:{memory}")).await,
            Self::Server(server) => builder.connect(&url(server)).await,
            Self::ServerByResp2(server) => {
                let url = format!("{}?protocol=resp2", url(server));
                builder.connect(&url).await
            }
            Self::Sentinel(trio) => builder.connect(&trio.url()).await,
            Self::Quorum { servers, .. } => {
                builder
                    .connect(StoreUrl::quorum(servers.iter().map(url)))
                    .await
            }
            Self::Cluster(cluster) => builder.connect(&cluster.url()).await,
            Self::Postgres(server) => builder.connect(&server.announced_url()).await,
            Self::Pooled { pooler, direct, .. } => {
                let url = if *direct {
                    pooler.url_with_direct()
                } else {
                    pooler.url()
                };
                builder.connect(&url).await
            }
        };
        connected.expect("the store is there")
    }

    /// Starts five independent servers, and pauses these.
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

    /// Starts a Postgres server.
    #[must_use]
    pub fn postgres() -> Self {
        Self::Postgres(PostgresServer::start())
    }

    /// Starts a Postgres server and a pooler of transactions before it, which clients pass for notifications if `direct`.
    #[must_use]
    pub fn pooled(direct: bool) -> Self {
        let server = PostgresServer::start();
        let pooler = Pooler::of_transactions(&server);
        Self::Pooled {
            server,
            pooler,
            direct,
        }
    }

    /// Starts three masters of a cluster, and a replica of each.
    pub async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }
}

/// The URL of a server, or of its proxy if it has one.
fn url(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}/", server.announced_port())
}

/// Unique keys at a topology, so that tests that share it do not meet.
#[derive(Debug)]
pub struct Place {
    topology: &'static Topology,
    name: String,
}

impl Place {
    /// Returns a place with unused keys.
    #[must_use]
    pub fn at(topology: &'static Topology) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            topology,
            name: format!("place-{number}:"),
        }
    }

    /// The topology of this place.
    #[must_use]
    pub fn topology(&self) -> &'static Topology {
        self.topology
    }

    /// Returns whether waiters are served in order. A quorum has no queue.
    #[must_use]
    pub fn keeps_strict_order(&self) -> bool {
        self.topology.keeps_strict_order()
    }

    /// Returns whether locks may have permits. On a quorum, too many holders could each have a majority.
    #[must_use]
    pub fn has_permits(&self) -> bool {
        !matches!(self.topology, Topology::Quorum { .. })
    }

    /// Deletes the lock of a key without braces behind its holder's back. Returns whether there was
    /// one.
    pub async fn delete(&self, key: &str) -> bool {
        let lock = format!("{}{{{key}}}", self.name);
        let servers = self.topology.servers_of(&lock).await;
        let deleted = join_all(servers.iter().map(|server| server.delete(&lock))).await;
        deleted.contains(&true)
    }

    /// Returns a client with the default options, and so with a connection on the current runtime.
    pub async fn client(&self) -> LockClient {
        self.client_of(LockClient::builder()).await
    }

    /// Returns several clients with the default options.
    pub async fn clients<const N: usize>(&self) -> [LockClient; N] {
        let clients = join_all((0..N).map(|_| self.client())).await;
        clients.try_into().expect("as many as were asked for")
    }

    /// Returns a client with these options, this place's prefix, time-outs that do not strike on a busy machine, and leases that do not end
    /// within a test.
    pub async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        let builder = builder.prefix(&self.name);
        let builder = builder
            .connect_timeout(PATIENCE)
            .response_timeout(PATIENCE / 3);
        let builder = builder.default_lease(PATIENCE * 10).default_wait(PATIENCE);
        self.topology.client_of(builder, &self.name).await
    }
}
