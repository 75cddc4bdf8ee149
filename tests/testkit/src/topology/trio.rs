//! A master, its replica, and three Sentinels.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::{Authority, PATIENCE, RedisServer, RedisServerBuilder, eventually};

/// The name of the service whose master the Sentinels know.
pub const SERVICE: &str = "orders";

/// A failover takes two seconds of silence, an election, and the notification of all servers.
pub const FAILOVER: Duration = Duration::from_secs(40);

/// The interval between requests to Sentinels.
const LOOK: Duration = Duration::from_millis(20);

/// The user of the clients, and the password of all users, if there are any.
const USER: &str = "app";
const USERS: &str = "users-Pa55w0rd";
const SERVERS: &str = "servers-Pa55w0rd";
const SENTINELS: &str = "sentinels-Pa55w0rd";

/// A master and its replica, watched by three Sentinels of which two have to agree.
#[derive(Debug)]
pub struct Trio {
    /// The first master.
    pub master: RedisServer,
    /// Replaces the master in a failover.
    pub replica: RedisServer,
    /// The three Sentinels.
    pub sentinels: Vec<RedisServer>,
    settings: TrioBuilder,
}

/// Options of a [`Trio`].
#[derive(Clone, Debug)]
pub struct TrioBuilder {
    silence: Duration,
    passwords: bool,
    behind_proxies: bool,
    authority: Option<Arc<Authority>>,
}

impl TrioBuilder {
    /// Sets the silence after which a Sentinel suspects a server. The default is longer than a busy machine stalls.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Requires passwords: of a user or of the servers, and another one of the Sentinels.
    #[must_use]
    pub fn passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// Puts the master and the replica behind proxies, whose addresses all servers and clients use.
    #[must_use]
    pub fn behind_proxies(mut self) -> Self {
        self.behind_proxies = true;
        self
    }

    /// Uses TLS for all five servers, and requires certificates of this authority.
    #[must_use]
    pub fn tls(mut self, authority: &Arc<Authority>) -> Self {
        self.authority = Some(Arc::clone(authority));
        self
    }

    /// Starts all five servers, and returns when they know each other.
    pub async fn start(self) -> Trio {
        let (master, replica) = (self.server().start(), self.server().start());
        replica.follow(&master).await;
        let sentinels = (0..3).map(|_| self.sentinel(&master).start()).collect();
        let trio = Trio {
            sentinels,
            master,
            replica,
            settings: self,
        };
        trio.have_met().await;
        trio
    }

    fn server(&self) -> RedisServerBuilder {
        let mut server = self.any();
        if self.behind_proxies {
            server = server.behind_proxy();
        }
        if self.passwords {
            server = server
                .password(SERVERS)
                .config("masterauth", SERVERS)
                .acl_user(USER, &format!("on >{USERS} ~* &* +@all"));
        }
        server
    }

    fn sentinel(&self, master: &RedisServer) -> RedisServerBuilder {
        let mut sentinel = self.any().sentinel(SERVICE, master, 2, self.silence);
        if self.passwords {
            sentinel = sentinel
                .password(SENTINELS)
                .config("sentinel", &format!("sentinel-pass {SENTINELS}"))
                .config("sentinel", &format!("auth-pass {SERVICE} {SERVERS}"));
        }
        sentinel
    }

    fn any(&self) -> RedisServerBuilder {
        match &self.authority {
            Some(authority) => RedisServer::builder()
                .tls_of(authority)
                .asks_for_certificates()
                .replicates_by_tls(),
            None => RedisServer::builder(),
        }
    }
}

impl Trio {
    /// Starts all five servers with default options.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder of a trio.
    #[must_use]
    pub fn builder() -> TrioBuilder {
        TrioBuilder {
            silence: PATIENCE,
            passwords: false,
            behind_proxies: false,
            authority: None,
        }
    }

    /// The URL: `redis-sentinel://…` or `rediss-sentinel://…`, with the required passwords.
    #[must_use]
    pub fn url(&self) -> String {
        if self.settings.passwords {
            self.url_with(
                &format!("{USER}:{USERS}@"),
                &format!("?sentinel_password={SENTINELS}"),
            )
        } else {
            self.url_with("", "")
        }
    }

    /// Like [`url`](Self::url), with this login before the hosts and this query at the end.
    #[must_use]
    pub fn url_with(&self, login: &str, query: &str) -> String {
        let (scheme, port): (_, fn(&RedisServer) -> u16) = match self.settings.authority {
            Some(_) => ("rediss-sentinel", RedisServer::tls_port),
            None => ("redis-sentinel", RedisServer::port),
        };
        let address = |sentinel| format!("127.0.0.1:{}", port(sentinel));
        let addresses: Vec<_> = self.sentinels.iter().map(address).collect();
        format!("{scheme}://{login}{}/{SERVICE}{query}", addresses.join(","))
    }

    async fn have_met(&self) {
        let hellos = join_all(
            self.sentinels
                .iter()
                .map(|sentinel| self.hello_of(sentinel)),
        )
        .await;
        let what = "the sentinels know each other and the replica";
        eventually(PATIENCE, what, async || {
            for sentinel in &self.sentinels {
                let seen = self.seen_by(sentinel).await;
                if seen["num-other-sentinels"] != "2" {
                    // Sentinels announce themselves only every two seconds.
                    for hello in &hellos {
                        let words = ["PUBLISH", "__sentinel__:hello", hello];
                        let _: u64 = self.master.command(&words).await;
                    }
                    return false;
                }
            }
            self.all_see_the_replica().await
        })
        .await;
    }

    /// The message with which a Sentinel announces itself and the master.
    async fn hello_of(&self, sentinel: &RedisServer) -> String {
        let id: String = sentinel.command(&["SENTINEL", "MYID"]).await;
        let (port, master) = (sentinel.replication_port(), self.master.replication_port());
        format!("127.0.0.1,{port},{id},0,{SERVICE},127.0.0.1,{master},0")
    }

    /// Returns when the replica is the master. Asks the Sentinels only, because a promoted server
    /// closes all its connections.
    pub async fn failed_over(&self) {
        self.led_by(&self.replica).await;
    }

    /// Kills the master. From then on, the Sentinels suspect a server after two seconds.
    pub async fn lose_master(&self) {
        for sentinel in &self.sentinels {
            let time = "2000";
            let set = ["SENTINEL", "SET", SERVICE, "down-after-milliseconds", time];
            let () = sentinel.command(&set).await;
        }
        self.master.kill();
    }

    /// Orders failovers until the replica is promoted. Faults of connections may prevent the first ones.
    pub async fn order_failover(&self) {
        let end = Instant::now() + FAILOVER;
        while !self.is_led_by(&self.replica).await {
            assert!(Instant::now() < end, "no failover");
            let mut order = redis::cmd("SENTINEL");
            order.arg(&["FAILOVER", SERVICE]);
            let mut sentinel = self.sentinels[0].connection().await;
            // The Sentinel refuses while a failover is under way, or the replica is not ready.
            let _ = order.query_async::<()>(&mut sentinel).await;
            sleep(LOOK).await;
        }
    }

    /// Swaps the roles after a failover. The old master becomes a replica.
    pub async fn swap(&mut self) {
        std::mem::swap(&mut self.master, &mut self.replica);
        self.replica.follow_in_vain(&self.master).await;
        self.master
            .config_set("repl-diskless-sync-delay", "0")
            .await;
    }

    /// Returns as soon as all Sentinels see the replica as a replica. Returns `true` if it has become the master by
    /// then, which swaps the roles.
    pub async fn settle(&mut self) -> bool {
        let mut again = false;
        let end = Instant::now() + FAILOVER;
        while !self.all_see_the_replica().await {
            assert!(
                Instant::now() < end,
                "the former master is not a replica yet"
            );
            sleep(LOOK).await;
            // On a busy machine, the next server may look down, too.
            if self.is_led_by(&self.replica).await {
                self.led_by(&self.replica).await;
                self.swap().await;
                again = true;
            }
        }
        again
    }

    async fn all_see_the_replica(&self) -> bool {
        let port = self.replica.replication_port().to_string();
        for sentinel in &self.sentinels {
            if !follows(sentinel, &port).await {
                return false;
            }
        }
        true
    }

    /// Returns when all Sentinels agree on this master.
    pub async fn led_by(&self, server: &RedisServer) {
        let port = server.replication_port().to_string();
        for sentinel in &self.sentinels {
            let end = Instant::now() + FAILOVER;
            while self.seen_by(sentinel).await["port"] != port {
                assert!(Instant::now() < end, "no other is the master");
                sleep(LOOK).await;
            }
        }
    }

    /// Returns whether a Sentinel names this server as the master.
    pub async fn is_led_by(&self, server: &RedisServer) -> bool {
        let port = server.replication_port().to_string();
        for sentinel in &self.sentinels {
            if self.seen_by(sentinel).await["port"] == port {
                return true;
            }
        }
        false
    }

    /// Returns the highest configuration epoch that the Sentinels know: the number of failovers.
    pub async fn epoch(&self) -> u64 {
        let mut newest = 0;
        for sentinel in &self.sentinels {
            let seen = self.seen_by(sentinel).await;
            let epoch = seen
                .get("config-epoch")
                .and_then(|epoch| epoch.parse().ok());
            newest = newest.max(epoch.unwrap_or(0));
        }
        newest
    }

    async fn seen_by(&self, sentinel: &RedisServer) -> BTreeMap<String, String> {
        sentinel.command(&["SENTINEL", "MASTER", SERVICE]).await
    }
}

/// Returns whether this Sentinel sees an up-to-date replica at this port.
async fn follows(sentinel: &RedisServer, port: &str) -> bool {
    let replicas: Vec<BTreeMap<String, String>> =
        sentinel.command(&["SENTINEL", "REPLICAS", SERVICE]).await;
    replicas.iter().any(|seen| {
        let is = |fact: &str, value: &str| seen.get(fact).is_some_and(|known| known == value);
        is("port", port) && is("flags", "slave") && is("master-link-status", "ok")
    })
}
