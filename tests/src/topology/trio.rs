//! A master, its replica, and three Sentinels.

use std::{collections::BTreeMap, time::Duration};

use crate::{PATIENCE, RedisServer, eventually};

/// What the service is called whose master the Sentinels know.
pub const SERVICE: &str = "orders";

/// A failover takes half a second of silence, an election, and for all to hear of it.
pub const FAILOVER: Duration = Duration::from_secs(40);

/// A master and its replica, watched by three Sentinels of which two have to agree.
#[derive(Debug)]
pub struct Trio {
    /// The first master.
    pub master: RedisServer,
    /// Takes its place in a failover.
    pub replica: RedisServer,
    /// All three.
    pub sentinels: Vec<RedisServer>,
}

impl Trio {
    /// Starts all five, and returns when they know of each other.
    pub async fn start() -> Self {
        let (master, replica) = (RedisServer::start(), RedisServer::start());
        replica.follow(&master).await;
        let sentinel = || RedisServer::builder().sentinel(SERVICE, &master, 2).start();
        let trio = Self {
            sentinels: (0..3).map(|_| sentinel()).collect(),
            master,
            replica,
        };
        for sentinel in &trio.sentinels {
            eventually(
                PATIENCE,
                "the sentinels know each other and the replica",
                async || {
                    let seen = trio.seen_by(sentinel).await;
                    seen["num-slaves"] == "1" && seen["num-other-sentinels"] == "2"
                },
            )
            .await;
        }
        trio
    }

    /// Where a client connects: `redis-sentinel://…`.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(RedisServer::address).collect();
        format!("redis-sentinel://{}/{SERVICE}", addresses.join(","))
    }

    /// Returns when the replica is the master. Asks the Sentinels alone: a server that they promote loses
    /// all its connections.
    pub async fn failed_over(&self) {
        let port = self.replica.port().to_string();
        for sentinel in &self.sentinels {
            eventually(FAILOVER, "the replica is the master", async || {
                self.seen_by(sentinel).await["port"] == port
            })
            .await;
        }
    }

    async fn seen_by(&self, sentinel: &RedisServer) -> BTreeMap<String, String> {
        sentinel.command(&["SENTINEL", "MASTER", SERVICE]).await
    }
}
