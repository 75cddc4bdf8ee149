//! Topologies whose servers can be reached by proxies only, and what befalls a lock there.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder};

use super::{Deletion, Topology, Trio};
use crate::{Proxy, RedisCluster, RedisServer};

/// No replica takes the place of a paused server: clients wait for it. What a failover
/// does to locks is for other tests.
const SILENCE: Duration = Duration::from_secs(60);

/// A topology for one test, with a proxy before every server that may have locks. All clients come by these.
///
/// What befalls it befalls the servers that have the lock [`KEY`](Self::KEY), or the ways to them.
#[derive(Debug)]
pub struct Fronted {
    topology: Topology,
    /// So many of the servers that have the lock are left alone.
    spared: usize,
}

impl Fronted {
    /// The key of the lock that this is about.
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

    /// Starts a master, its replica and three Sentinels, which come by the proxies, too.
    pub async fn sentinel() -> Self {
        let trio = Trio::builder().silence(SILENCE).behind_proxies();
        Self::of(Topology::Sentinel(Box::new(trio.start().await)))
    }

    /// Starts three masters of a cluster and a replica of each, which speak with each other directly.
    pub async fn cluster() -> Self {
        let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
        cluster.silence(SILENCE).await;
        Self::of(Topology::Cluster(cluster))
    }

    /// Starts five servers that know nothing of each other.
    #[must_use]
    pub fn quorum() -> Self {
        let servers = (0..5).map(|_| server()).collect();
        Self::of(Topology::Quorum {
            servers,
            stopped: Vec::new(),
        })
    }

    /// The same, and nothing befalls the first two: just enough are struck that no majority is left.
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

    /// Returns a client with the default options, and so with a connection on the current runtime.
    pub async fn client(&self) -> LockClient {
        self.client_of(LockClient::builder()).await
    }

    /// A client that is set up like this.
    pub async fn client_of(&self, builder: LockClientBuilder) -> LockClient {
        self.topology.client_of(builder, "").await
    }

    /// What the lock is called on its servers.
    #[must_use]
    pub fn lock() -> String {
        format!("lock:{{{}}}", Self::KEY)
    }
}

/// What topologies do differently by nature.
impl Fronted {
    /// How a holder learns that its lock was deleted.
    #[must_use]
    pub fn deletion(&self) -> Deletion {
        self.topology.deletion()
    }

    /// How late an answer may be that still gives this lease, which counts from the question. A quorum waits
    /// for an eighth of it, so that servers that stay away cost little.
    #[must_use]
    pub fn latest_reply(&self, lease: Duration) -> Duration {
        match self.topology {
            Topology::Quorum { .. } => lease / 12,
            _ => lease / 6,
        }
    }

    /// How many of so many servers count entries right. In a quorum a majority: a server that receives nothing of
    /// an entry that was left is set right by the next change.
    #[must_use]
    pub fn deciding(&self, servers: usize) -> usize {
        match self.topology {
            Topology::Quorum { .. } => servers / 2 + 1,
            _ => servers,
        }
    }

    /// The servers that have the lock: one, the master, the master of its slot, or all of a quorum.
    pub async fn servers(&self) -> Vec<&RedisServer> {
        self.topology.servers_of(&Self::lock()).await
    }

    /// Those of them that are struck: all, or just so many of a quorum that the others are none.
    pub async fn struck(&self) -> Vec<&RedisServer> {
        self.servers().await.split_off(self.spared)
    }
}

/// What befalls it.
impl Fronted {
    /// Does this to all ways to the struck servers, e.g. [`Proxy::reset`].
    pub async fn ways(&self, strike: impl Fn(&Proxy)) {
        for server in self.struck().await {
            strike(server.front());
        }
    }

    /// Ends whatever befalls the ways.
    pub async fn pass(&self) {
        self.ways(Proxy::pass).await;
    }

    /// Every struck server executes the next request about the lock, and its answer is lost with the connection.
    pub async fn lose_the_next_reply(&self) {
        self.ways(|proxy| {
            proxy.drop_replies_if(1, |request| {
                request.is("EVALSHA") && request.mentions(&Self::lock())
            });
        })
        .await;
    }

    /// Whether so many answers of each struck server have been lost until now.
    pub async fn have_lost(&self, answers: u64) -> bool {
        let struck = self.struck().await;
        struck
            .iter()
            .all(|server| server.front().replies_lost() == answers)
    }

    /// The struck servers are paused.
    pub async fn freeze(&self) {
        self.struck().await.into_iter().for_each(RedisServer::pause);
    }

    /// They go on, and execute what was sent meanwhile.
    pub async fn thaw(&self) {
        let struck = self.struck().await;
        struck.into_iter().for_each(RedisServer::resume);
    }

    /// Deletes the lock behind its holder's back. Says whether all struck servers had it.
    pub async fn delete(&self) -> bool {
        let (lock, struck) = (Self::lock(), self.struck().await);
        // At once, because those that still have a lock give it to those that have lost it.
        let deleted = join_all(struck.into_iter().map(|server| server.del(&lock))).await;
        !deleted.contains(&false)
    }
}

fn server() -> RedisServer {
    RedisServer::builder().behind_proxy().start()
}
