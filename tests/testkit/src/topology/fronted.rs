//! Topologies whose servers are only reachable through proxies, and faults for one lock.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder};

use super::{Server, Topology, Trio};
use crate::{PATIENCE, PostgresServer, Proxy, RedisCluster, RedisServer};

/// No replica replaces a paused server: clients wait for it. Other tests cover failovers.
const SILENCE: Duration = Duration::from_secs(60);

/// A topology for one test, with a proxy in front of every server. All clients connect through the
/// proxies.
///
/// Its faults hit the servers that have the lock [`KEY`](Self::KEY), or the connections to them.
#[derive(Debug)]
pub struct Fronted {
    topology: Topology,
    /// This many of the lock's servers are spared.
    spared: usize,
}

impl Fronted {
    /// The key of the tested lock.
    pub const KEY: &str = "k";

    /// Starts one server, for RESP3.
    #[must_use]
    pub fn server() -> Self {
        Self::of(Topology::Server(server()))
    }

    /// Starts one server, for RESP2.
    #[must_use]
    pub fn server_by_resp2() -> Self {
        Self::of(Topology::ServerByResp2(server()))
    }

    /// Starts a master, its replica and three Sentinels, which connect through the proxies, too.
    pub async fn sentinel() -> Self {
        let trio = Trio::builder().silence(SILENCE).behind_proxies();
        Self::of(Topology::Sentinel(Box::new(trio.start().await)))
    }

    /// Starts three masters of a cluster and a replica of each, which connect to each other
    /// directly.
    pub async fn cluster() -> Self {
        let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
        cluster.silence(SILENCE).await;
        Self::of(Topology::Cluster(cluster))
    }

    /// Starts five independent servers.
    #[must_use]
    pub fn quorum() -> Self {
        let servers = (0..5).map(|_| server()).collect();
        Self::of(Topology::Quorum {
            servers,
            stopped: Vec::new(),
        })
    }

    /// Starts a Postgres server.
    #[must_use]
    pub fn postgres() -> Self {
        Self::of(Topology::Postgres(PostgresServer::start().behind_proxy()))
    }

    /// Like [`quorum`](Self::quorum), but spares the first two: the faults leave no majority.
    #[must_use]
    pub fn quorum_but_for_two() -> Self {
        Self {
            spared: 2,
            ..Self::quorum()
        }
    }

    fn of(topology: Topology) -> Self {
        Self {
            topology,
            spared: 0,
        }
    }

    /// Returns a client that waits for replies that a busy machine delays. It has a connection on the current runtime.
    pub async fn client(&self) -> LockClient {
        let builder = LockClient::builder().response_timeout(PATIENCE / 10);
        self.client_of(builder).await
    }

    /// Returns a client with these options.
    pub async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        self.topology.client_of(builder, "").await
    }

    /// The name of the lock on its servers.
    fn lock() -> String {
        format!("lock:{{{}}}", Self::KEY)
    }
}

/// Differences between topologies.
impl Fronted {
    /// Returns whether the server notifies the holder of a lock that another client deletes. Otherwise its next renewal finds out.
    #[must_use]
    pub fn reports_deletions(&self) -> bool {
        !matches!(
            self.topology,
            Topology::ServerByResp2(_) | Topology::Postgres(_)
        )
    }

    /// Returns whether waiters are served in order. A quorum has no queue.
    #[must_use]
    pub fn keeps_strict_order(&self) -> bool {
        self.topology.keeps_strict_order()
    }

    /// Returns whether the store grants an acquire that arrives after its owner's release, although the owner had nothing. One
    /// server refuses it, or executes it before the release.
    #[must_use]
    pub fn grants_late_requests(&self) -> bool {
        matches!(self.topology, Topology::Quorum { .. })
    }

    /// Returns how many of this many servers count entries correctly. In a quorum it is a majority:
    /// a server that missed a change keeps the former state.
    #[must_use]
    pub fn deciding(&self, servers: usize) -> usize {
        match self.topology {
            Topology::Quorum { .. } => servers / 2 + 1,
            _ => servers,
        }
    }

    /// Returns the servers of the lock: one server, the master, the master of its slot, or all
    /// members.
    async fn servers(&self) -> Vec<Server<'_>> {
        self.topology.servers_of(&Self::lock()).await
    }

    /// Returns the servers that the faults hit: all, or all but the spared members.
    async fn struck(&self) -> Vec<Server<'_>> {
        self.servers().await.split_off(self.spared)
    }
}

/// What the servers have.
impl Fronted {
    /// Returns the owners of the lock, with the counts of their entries, at each server.
    pub async fn owners(&self) -> Vec<BTreeMap<String, String>> {
        let (lock, servers) = (Self::lock(), self.servers().await);
        join_all(servers.iter().map(|server| server.owners(&lock))).await
    }

    /// Returns whether the struck servers have granted the lock at some time.
    pub async fn have_granted(&self) -> bool {
        let (lock, struck) = (Self::lock(), self.struck().await);
        let know = join_all(struck.iter().map(|server| server.knows(&lock))).await;
        !know.contains(&false)
    }

    /// Returns whether the servers have nothing of the lock but its last fence.
    pub async fn are_clear(&self) -> bool {
        let (lock, servers) = (Self::lock(), self.servers().await);
        let clear = join_all(servers.iter().map(|server| server.is_clear(&lock))).await;
        !clear.contains(&false)
    }
}

/// Faults.
impl Fronted {
    /// Applies a fault to all proxies of the struck servers, such as [`Proxy::reset`].
    pub async fn ways(&self, strike: impl Fn(&Proxy)) {
        for server in self.struck().await {
            strike(server.front());
        }
    }

    /// Ends all faults of the proxies.
    pub async fn pass(&self) {
        self.ways(Proxy::pass).await;
    }

    /// Loses the next reply of every struck server to a request about the lock, with its
    /// connection.
    pub async fn lose_the_next_reply(&self) {
        self.lose_the_next_replies(1).await;
    }

    /// The same for this many replies.
    pub async fn lose_the_next_replies(&self, count: u64) {
        self.ways(|proxy| {
            proxy.drop_replies_if(count, |request| request.mentions(&Self::lock()));
        })
        .await;
    }

    /// Returns whether this many replies of each struck server have been lost so far.
    pub async fn have_lost(&self, answers: u64) -> bool {
        let struck = self.struck().await;
        struck
            .iter()
            .all(|server| server.front().replies_lost() == answers)
    }

    /// Pauses the struck servers.
    pub async fn freeze(&self) {
        self.struck().await.iter().for_each(Server::pause);
    }

    /// Resumes the struck servers, which execute the requests of the pause.
    pub async fn thaw(&self) {
        self.struck().await.iter().for_each(Server::resume);
    }

    /// Deletes the lock behind its holder's back. Returns whether all struck servers had it.
    pub async fn delete(&self) -> bool {
        let (lock, struck) = (Self::lock(), self.struck().await);
        let deleted = join_all(struck.iter().map(|server| server.delete(&lock))).await;
        !deleted.contains(&false)
    }
}

fn server() -> RedisServer {
    RedisServer::builder().behind_proxy().start()
}
