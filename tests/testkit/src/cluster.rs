//! A Redis Cluster of real servers: three masters with a replica each.

use std::time::Duration;

use redis::{FromRedisValue, InfoDict, RedisError, RedisResult, Value};
use tokio::sync::Mutex;

use crate::{PATIENCE, RedisServer, eventually};

/// The number of masters in a cluster, and of replicas.
pub const MASTERS: usize = 3;

const SLOTS: u16 = 16_384;
/// The slots of each master, of which the last one has fewer.
const SHARE: u16 = 5_462;
/// A node counts as dead after this silence.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);

/// Six servers. The first three begin as masters, each with a third of the slots. The replica of
/// master `n` is server `n + 3`. They stop when the cluster is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// Locked while keys move or a slot changes its owner. Nodes that `MIGRATE` to each other at the same time block each
    /// other until the time-out.
    moving: Mutex<()>,
}

impl RedisCluster {
    /// Starts the servers, and returns once all of them agree that the cluster works.
    #[must_use = "the servers stop when this is dropped"]
    pub async fn start() -> Self {
        Self::of(&RedisServer::builder()).await
    }

    /// Like [`start`](Self::start), with servers of these options.
    #[must_use = "the servers stop when this is dropped"]
    pub async fn of(builder: &crate::RedisServerBuilder) -> Self {
        let node = || builder.clone().cluster_node(NODE_TIMEOUT).start();
        let nodes: Vec<_> = (0..2 * MASTERS).map(|_| node()).collect();
        let cluster = Self {
            nodes,
            moving: Mutex::default(),
        };
        cluster.form().await;
        cluster
    }

    async fn meet(&self) {
        for node in &self.nodes[1..] {
            let port = node.cluster_port().to_string();
            let bus = node.bus_port().to_string();
            let () = self.nodes[0]
                .command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
                .await;
        }
    }

    async fn form(&self) {
        for (n, node) in self.nodes.iter().enumerate() {
            node.config_set("repl-diskless-sync-delay", "0").await;
            let epoch = (n + 1).to_string();
            let () = node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        for (first, master) in (0..SLOTS).step_by(SHARE.into()).zip(&self.nodes) {
            let last = (first + SHARE).min(SLOTS) - 1;
            master.serve_slots(first..=last).await;
        }
        let all = self.nodes.len();
        let known = self.all("know each other", async |node| {
            let nodes: String = node.command(&["CLUSTER", "NODES"]).await;
            nodes.lines().count() == all && !nodes.contains("handshake")
        });
        // Introduces the nodes again, because on a busy machine a handshake may expire.
        let meeting = async {
            loop {
                self.meet().await;
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        };
        tokio::select! {
            () = known => {}
            () = meeting => {}
        }
        for (master, replica) in self.nodes.iter().zip(&self.nodes[MASTERS..]) {
            let id: String = master.command(&["CLUSTER", "MYID"]).await;
            let () = replica.command(&["CLUSTER", "REPLICATE", &id]).await;
        }
        self.settled().await;
    }

    /// Returns once all running nodes agree on the slots, and every replica follows its master.
    pub async fn settled(&self) {
        self.all("agree", async |node| {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            let replication: InfoDict = node.command(&["INFO", "replication"]).await;
            let follows = replication.get::<String>("role").as_deref() == Some("master")
                || replication.get::<String>("master_link_status").as_deref() == Some("up");
            info.contains("cluster_state:ok") && follows
        })
        .await;
        self.agreed().await;
    }

    /// Returns once all nodes that reply know the same masters, epochs and slots.
    async fn agreed(&self) {
        eventually(PATIENCE, "one view of the cluster", async || {
            let mut views = Vec::new();
            for node in self.nodes.iter().filter(|node| node.answers()) {
                views.push(known_masters(node).await);
            }
            views.windows(2).all(|pair| pair[0] == pair[1])
        })
        .await;
    }

    /// Sets the silence after which a node counts as dead, and its replica takes over. By default it is longer than a busy machine
    /// stands still.
    pub async fn silence(&self, silence: Duration) {
        let silence = silence.as_millis().to_string();
        for node in &self.nodes {
            node.config_set("cluster-node-timeout", &silence).await;
        }
    }

    async fn all(&self, what: &str, is_so: impl AsyncFn(&RedisServer) -> bool) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let what = format!("all nodes of the cluster {what}");
            eventually(PATIENCE, &what, async || is_so(node).await).await;
        }
    }

    /// The URL of the cluster: the addresses of the nodes that began as masters.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_by("redis-cluster", RedisServer::announced_port)
    }

    /// The URL for TLS.
    #[must_use]
    pub fn tls_url(&self) -> String {
        self.url_by("rediss-cluster", RedisServer::tls_port)
    }

    fn url_by(&self, scheme: &str, port: impl Fn(&RedisServer) -> u16) -> String {
        let address = |node| format!("127.0.0.1:{}", port(node));
        let addresses: Vec<_> = self.nodes[..MASTERS].iter().map(address).collect();
        format!("{scheme}://{}", addresses.join(","))
    }

    /// One of the servers.
    #[must_use]
    pub fn node(&self, n: usize) -> &RedisServer {
        &self.nodes[n]
    }

    /// The server that began as the replica of a master.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> &RedisServer {
        &self.nodes[master + MASTERS]
    }

    /// Returns the slot of a key, as the server computes it.
    pub async fn slot_of(&self, name: &str) -> u16 {
        self.any().command(&["CLUSTER", "KEYSLOT", name]).await
    }

    /// Returns the server that serves the slot of a key now.
    pub async fn owner_of(&self, name: &str) -> &RedisServer {
        let slot = self.slot_of(name).await;
        let owners = owners(self.any()).await;
        let (_, _, port) = owners
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .expect("every slot has an owner");
        let node = self
            .nodes
            .iter()
            .find(|node| node.announced_port() == *port);
        node.expect("the nodes are those of the fixture")
    }

    /// Finds a key with this prefix whose lock lies at this master, before any slot moves.
    pub async fn key_at(&self, master: usize, begins: &str) -> String {
        for n in 0.. {
            let key = format!("{begins}-{n}");
            let slot = self.slot_of(&format!("lock:{{{key}}}")).await;
            if usize::from(slot / SHARE) == master {
                return key;
            }
        }
        unreachable!("there are keys of every slot")
    }

    /// Runs a command at the server that serves the slot of this key.
    pub async fn command<T: FromRedisValue>(&self, key: &str, words: &[&str]) -> T {
        self.owner_of(key).await.command(words).await
    }

    /// Starts to move a slot: from now on new keys are created at `to` only.
    pub async fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (self.node(from), self.node(to));
        let (source, target) = (id_of(from).await, id_of(to).await);
        let slot = slot.to_string();
        let () = to
            .command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])
            .await;
        let () = from
            .command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])
            .await;
    }

    /// Lists the keys of a slot on a node.
    pub async fn keys_in(&self, slot: u16, node: usize) -> Vec<String> {
        let slot = slot.to_string();
        let node = self.node(node);
        node.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"])
            .await
    }

    /// Moves one key. Fails if the target already has a key of that name, other than an older fence, because it would be
    /// lost.
    pub async fn move_key(&self, key: &str, from: usize, to: usize) {
        let _alone = self.moving.lock().await;
        self.migrate(key, from, to).await;
    }

    async fn migrate(&self, key: &str, from: usize, to: usize) {
        let port = self.node(to).port().to_string();
        let mut migrate = redis::cmd("MIGRATE");
        for word in ["127.0.0.1", &port, key, "0", "10000"] {
            migrate.arg(word);
        }
        let mut source = self.node(from).connection().await;
        let mut moved: RedisResult<String> = migrate.query_async(&mut source).await;
        let is_there = |error: &RedisError| error.to_string().contains("BUSYKEY");
        if key.ends_with(":released") && moved.as_ref().is_err_and(is_there) {
            // The target has a later one.
            self.node(from).del(key).await;
            return;
        }
        if key.ends_with(":fence") && moved.as_ref().is_err_and(is_there) {
            // A replica that was promoted at the target kept an older copy. No request creates another fence there.
            let mut target = self.node(to).connection().await;
            let mut get = redis::pipe();
            get.cmd("ASKING").ignore().cmd("GET").arg(key);
            let old: RedisResult<[u64; 1]> = get.query_async(&mut target).await;
            let last: u64 = self.node(from).command(&["GET", key]).await;
            let [old] = old.expect("a token");
            assert!(
                old <= last,
                "{key}: {old} at the target, {last} at the source"
            );
            moved = migrate.arg("REPLACE").query_async(&mut source).await;
        }
        assert!(
            moved
                .as_ref()
                .is_ok_and(|moved| moved == "OK" || moved == "NOKEY"),
            "{key}: {moved:?}"
        );
    }

    /// Moves the remaining keys of a slot, and assigns it to its new owner. Returns once all nodes
    /// know it.
    ///
    /// The new owner claims all its slots in a new epoch. It has to know that another slot has moved
    /// away. Otherwise its claim undoes that move and deletes the keys, and the nodes disagree for
    /// good.
    pub async fn end_to_move(&self, slot: u16, from: usize, to: usize) {
        let _alone = self.moving.lock().await;
        loop {
            let keys = self.keys_in(slot, from).await;
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.migrate(&key, from, to).await;
            }
        }
        let (target, number) = (id_of(self.node(to)).await, slot.to_string());
        for node in [to, from] {
            let () = self
                .node(node)
                .command(&["CLUSTER", "SETSLOT", &number, "NODE", &target])
                .await;
        }
        self.agreed().await;
    }

    /// Moves a slot from one node to another.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_to_move(slot, from, to).await;
        self.end_to_move(slot, from, to).await;
    }

    /// Waits until the replica of a master is a master itself, and the other nodes agree.
    pub async fn failed_over(&self, master: usize) {
        self.led_by(master + MASTERS).await;
    }

    /// Waits until this server is a master, and the other nodes agree.
    pub async fn led_by(&self, node: usize) {
        let port = self.node(node).announced_port();
        eventually(PATIENCE, "the replica is a master", async || {
            let mut views = 0;
            for node in self.nodes.iter().filter(|node| node.answers()) {
                let owners = owners(node).await;
                if !owners.iter().any(|(_, _, owner)| *owner == port) {
                    return false;
                }
                views += 1;
            }
            views > 0
        })
        .await;
    }

    /// Returns the current masters: of each pair, the server that has slots.
    pub async fn masters(&self) -> [usize; MASTERS] {
        let owners = owners(self.any()).await;
        let leads = |node: &usize| {
            let port = self.node(*node).announced_port();
            owners.iter().any(|(_, _, owner)| *owner == port)
        };
        std::array::from_fn(|pair| {
            let node = [pair, pair + MASTERS].into_iter().find(leads);
            node.expect("one of each pair is a master")
        })
    }

    fn any(&self) -> &RedisServer {
        let running = self.nodes.iter().find(|node| node.answers());
        running.expect("some node of the cluster runs")
    }
}

/// The first and the last slot of each range, and the port of its master.
async fn owners(node: &RedisServer) -> Vec<(u16, u16, u16)> {
    let ranges: Vec<(u16, u16, Value)> = {
        let answer: Vec<Vec<Value>> = node.command(&["CLUSTER", "SLOTS"]).await;
        let ranges = answer.into_iter().map(|range| {
            let mut parts = range.into_iter();
            let mut next = || parts.next().expect("a range has two ends and a master");
            let number = |value| redis::from_redis_value(value).expect("a slot is a number");
            (number(next()), number(next()), next())
        });
        ranges.collect()
    };
    let master = |(first, last, master)| {
        let Value::Array(master) = master else {
            panic!("{master:?} is not a node");
        };
        let port = redis::from_redis_value(master[1].clone()).expect("a port is a number");
        (first, last, port)
    };
    let mut owners: Vec<_> = ranges.into_iter().map(master).collect();
    owners.sort_unstable();
    owners
}

/// The id, the config epoch and the slots of each master, as a node knows them.
async fn known_masters(node: &RedisServer) -> Vec<String> {
    let nodes: String = node.command(&["CLUSTER", "NODES"]).await;
    let master = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (id, epoch) = (words[0], words[6]);
        // In brackets: slots that migrate, which only the node itself reports.
        let slots = words[8..].iter().filter(|slots| !slots.starts_with('['));
        let slots = slots.copied().collect::<Vec<_>>().join(" ");
        (!slots.is_empty()).then(|| format!("{id} {epoch} {slots}"))
    };
    let mut masters: Vec<String> = nodes.lines().filter_map(master).collect();
    masters.sort_unstable();
    masters
}

async fn id_of(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).await
}
