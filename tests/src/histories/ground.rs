//! The store of a run outside of the client processes: servers, a cluster, or a database.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use super::{
    cluster::{self, Cluster},
    collect::Recorder,
    database::{self, Database},
    fronts::{self, Fronts},
    options::Kind,
    outage::{self, Server, Servers, number_of},
    schedule::{Lane, VOTERS},
    slot::Way,
    watch as eye,
};
use rlock_testkit::{RedisServer, leftovers};

pub(super) struct Ground {
    sort: Sort,
    /// The shared proxies, if any.
    fronts: Option<Fronts>,
}

enum Sort {
    Servers(Servers),
    Cluster(Arc<Cluster>),
    Postgres(Arc<Database>),
}

impl Ground {
    /// Returns also how clients connect.
    pub(super) async fn start(store: Kind) -> (Self, Way) {
        match store {
            Kind::Sentinel => {
                let (server, url, fronts) = Server::start_with_sentinels().await;
                Self::shared(Sort::Servers(Arc::new([server])), url, fronts)
            }
            Kind::Cluster => {
                let (cluster, url, fronts) = Cluster::start().await;
                Self::shared(Sort::Cluster(Arc::new(cluster)), url, fronts)
            }
            Kind::Quorum => Self::of_servers(Server::start_several(VOTERS)).await,
            Kind::Redis => Self::of_servers(Arc::new([Arc::new(Server::start())])).await,
            Kind::Postgres => {
                let (database, url) = Database::start().await;
                Self::proxied(Sort::Postgres(database), vec![url])
            }
            Kind::Memory => unreachable!("the embedded store is in the process of its clients"),
        }
    }

    fn shared(sort: Sort, url: String, fronts: Fronts) -> (Self, Way) {
        let fronts = Some(fronts);
        (Self { sort, fronts }, Way::Shared(url))
    }

    async fn of_servers(servers: Servers) -> (Self, Way) {
        let urls = servers.iter().map(async |server| server.up().await.url());
        let urls = join_all(urls).await;
        Self::proxied(Sort::Servers(servers), urls)
    }

    fn proxied(sort: Sort, urls: Vec<String>) -> (Self, Way) {
        (Self { sort, fronts: None }, Way::Proxied(urls.into()))
    }

    /// Observes the owners of all locks until these tasks are aborted.
    pub(super) fn watch(&self, eyes: &mut JoinSet<()>, keys: u32, recorder: &Recorder) {
        match &self.sort {
            Sort::Servers(servers) => {
                for (n, server) in servers.iter().enumerate() {
                    let number = number_of(n, servers.len());
                    let server = Arc::clone(server);
                    eyes.spawn(eye::watch(server, number, keys, recorder.clone()));
                }
            }
            Sort::Cluster(cluster) => {
                eyes.spawn(cluster::watch(Arc::clone(cluster), keys, recorder.clone()));
            }
            Sort::Postgres(database) => {
                eyes.spawn(database::watch(
                    Arc::clone(database),
                    keys,
                    recorder.clone(),
                ));
            }
        }
    }

    /// Applies the faults of a lane.
    pub(super) fn strike(
        &self,
        faults: &mut JoinSet<()>,
        lane: Lane,
        recorder: &Recorder,
        over: &watch::Receiver<bool>,
    ) {
        let (recorder, over) = (recorder.clone(), over.clone());
        match &self.sort {
            Sort::Servers(servers) => {
                let servers = Arc::clone(servers);
                faults.spawn(outage::strike(servers, lane, recorder, over));
            }
            Sort::Cluster(cluster) => {
                let cluster = Arc::clone(cluster);
                let runtime = Handle::current();
                // The future of a cluster is not `Send`.
                faults.spawn_blocking(move || {
                    runtime.block_on(cluster::strike(&cluster, lane, recorder, over));
                });
            }
            Sort::Postgres(database) => {
                faults.spawn(database::strike(Arc::clone(database), lane, recorder, over));
            }
        }
    }

    /// Applies the faults of a lane to shared proxies.
    pub(super) fn strike_fronts(
        &self,
        faults: &mut JoinSet<()>,
        lane: Lane,
        recorder: &Recorder,
        over: &watch::Receiver<bool>,
    ) {
        if let Some(fronts) = self.fronts.clone() {
            faults.spawn(fronts::strike(fronts, lane, recorder.clone(), over.clone()));
        }
    }

    /// Returns the leftovers of this many idle clients.
    pub(super) async fn left_by_idle_clients(&self, clients: usize) -> Vec<String> {
        match &self.sort {
            Sort::Servers(servers) => {
                let left = servers.iter().map(async |server| {
                    leftovers::of_idle_clients(&*server.up().await, clients).await
                });
                join_all(left).await.concat()
            }
            Sort::Cluster(cluster) => cluster.left_by_idle_clients().await,
            Sort::Postgres(database) => database.left_by_idle_clients().await,
        }
    }

    /// Returns the leftovers after all clients are gone.
    pub(super) async fn left_without_holder(&self) -> Vec<String> {
        match &self.sort {
            Sort::Servers(servers) => {
                let left = servers
                    .iter()
                    .map(async |server| leftovers::without_holder(&*server.up().await).await);
                join_all(left).await.concat()
            }
            Sort::Cluster(cluster) => cluster.left_without_holder().await,
            Sort::Postgres(database) => database.left_without_holder().await,
        }
    }

    pub(super) async fn version(&self) -> String {
        match &self.sort {
            Sort::Servers(servers) => version(&*servers[0].up().await).await,
            Sort::Cluster(cluster) => version(cluster.up().await.node(0)).await,
            Sort::Postgres(database) => database.version().await,
        }
    }
}

async fn version(server: &RedisServer) -> String {
    let info: String = server.command(&["INFO", "server"]).await;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    format!("redis {}", version.unwrap_or("of unknown version").trim())
}
