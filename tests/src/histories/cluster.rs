//! The cluster of a run and its faults: three masters with a replica each.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::{
    sync::{RwLock, RwLockReadGuard, watch},
    time::{sleep, timeout},
};

use super::{
    clock,
    collect::Recorder,
    fronts::Fronts,
    record::{Fault, FaultKind, Record},
    schedule::{Lane, Step},
    steps::Steps,
    watch::{self as eye, POLL, Sightings, name_of},
};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, leftovers};

/// The timeout of an ordered failover. A master tries for five seconds, and succeeds only when its
/// replica has all data.
const ATTEMPT: Duration = Duration::from_secs(6);
const ATTEMPTS: u32 = 3;
/// The silence after which a node counts as dead.
const SILENCE: Duration = Duration::from_secs(1);

/// A cluster whose servers may be down. Callers wait until all are up.
#[derive(Debug)]
pub(super) struct Cluster(RwLock<RedisCluster>);

impl Cluster {
    /// Returns also the URL for clients, and the proxies.
    pub(super) async fn start() -> (Self, String, Fronts) {
        // A restarted server soon has its master's data.
        let node = RedisServer::builder().config("repl-diskless-sync-delay", "0");
        let cluster = RedisCluster::of(&node.behind_proxy()).await;
        cluster.silence(SILENCE).await;
        let url = cluster.url();
        let proxies = (0..2 * MASTERS).map(|n| Arc::clone(cluster.node(n).front()));
        let fronts = Fronts {
            proxies: proxies.collect(),
            master: None,
        };
        (Self(RwLock::new(cluster)), url, fronts)
    }

    /// Returns the cluster, and keeps all servers up until the result is dropped.
    pub(super) async fn up(&self) -> RwLockReadGuard<'_, RedisCluster> {
        self.0.read().await
    }

    pub(super) async fn left_by_idle_clients(&self) -> Vec<String> {
        let cluster = self.up().await;
        let masters = cluster.masters().await;
        let left = masters.map(|master| leftovers::of_idleness(cluster.node(master)));
        join_all(left).await.concat()
    }

    pub(super) async fn left_without_holder(&self) -> Vec<String> {
        let cluster = self.up().await;
        let masters = cluster.masters().await;
        let left = masters.map(|master| leftovers::without_holder(cluster.node(master)));
        join_all(left).await.concat()
    }
}

/// Applies one fault after the other until the run ends. A failover may take longer than planned.
pub(super) async fn strike(
    cluster: &Cluster,
    lane: Lane,
    recorder: Recorder,
    over: watch::Receiver<bool>,
) {
    let mut looked = clock::now();
    let mut known = cluster.up().await.masters().await;
    let mut steps = Steps::new(lane, over);
    while let Some(step) = steps.next().await {
        let start = clock::now();
        let note = |kind, start, key| {
            recorder.note(Record::Fault(Fault {
                key,
                ..Fault::new(kind, start, clock::now())
            }));
        };
        let struck = strike_one(cluster, &step, known).await;
        let up = cluster.up().await;
        up.settled().await;
        let now = clock::now();
        let masters = up.masters().await;
        let is_of_key = matches!(step.kind, FaultKind::LockDeleted | FaultKind::SlotMoved);
        if struck {
            note(
                step.kind,
                start,
                is_of_key.then(|| format!("k{}", step.number)),
            );
        }
        // On a busy machine another master may look down.
        if masters != known && !changes_masters(step.kind) {
            note(FaultKind::MasterPaused, looked, None);
        }
        known = masters;
        looked = now;
    }
}

fn changes_masters(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::MasterKilled | FaultKind::MasterPaused | FaultKind::MasterHandedOver
    )
}

/// Returns whether the fault had an effect.
async fn strike_one(cluster: &Cluster, step: &Step, masters: [usize; MASTERS]) -> bool {
    let master = masters[step.servers[0]];
    match step.kind {
        FaultKind::ServerPaused => {
            let cluster = cluster.0.write().await;
            cluster.node(master).pause();
            sleep(step.lasts).await;
            cluster.node(master).resume();
            true
        }
        FaultKind::MasterKilled => {
            let cluster = cluster.0.write().await;
            cluster.node(master).kill();
            cluster.led_by(replica_of(master)).await;
            sleep(step.lasts).await;
            tokio::task::block_in_place(|| cluster.node(master).restart());
            // A restarted node has the default again, with which a failover takes 20 s, and minutes if a vote fails.
            cluster.silence(SILENCE).await;
            cluster.settled().await;
            true
        }
        FaultKind::MasterPaused => {
            let cluster = cluster.0.write().await;
            cluster.node(master).pause();
            sleep(step.lasts).await;
            cluster.led_by(replica_of(master)).await;
            cluster.node(master).resume();
            cluster.settled().await;
            true
        }
        FaultKind::MasterHandedOver => {
            let cluster = cluster.up().await;
            let replica = replica_of(master);
            for _ in 0..ATTEMPTS {
                let node = cluster.node(replica);
                // It refuses if the attempt before has made it the master late.
                let mut connection = node.connection().await;
                let _: RedisResult<()> = redis::cmd("CLUSTER")
                    .arg("FAILOVER")
                    .query_async(&mut connection)
                    .await;
                if timeout(ATTEMPT, cluster.led_by(replica)).await.is_ok() {
                    break;
                }
            }
            // Even a failed attempt delays clients.
            true
        }
        FaultKind::SlotMoved => {
            let cluster = cluster.up().await;
            let name = name_of(step.number);
            let owner = cluster.owner_of(&name).await.port();
            let is_owner = |node: &usize| cluster.node(*node).port() == owner;
            let from = masters.into_iter().find(is_owner);
            let Some(from) = from.filter(|from| *from != master) else {
                return false;
            };
            let slot = cluster.slot_of(&name).await;
            cluster.move_slot(slot, from, master).await;
            true
        }
        FaultKind::ClientsKilled => {
            let cluster = cluster.up().await;
            let node = cluster.node(master);
            node.kill_all_clients().await > 0
        }
        FaultKind::ScriptsFlushed => {
            cluster.up().await.node(master).script_flush().await;
            true
        }
        FaultKind::AllFlushed => {
            cluster.up().await.node(master).flush_all().await;
            true
        }
        FaultKind::LockDeleted => {
            let cluster = cluster.up().await;
            let name = name_of(step.number);
            cluster.owner_of(&name).await.del(&name).await
        }
        kind => unreachable!("{kind} is not a fault of a cluster"),
    }
}

fn replica_of(master: usize) -> usize {
    (master + MASTERS) % (2 * MASTERS)
}

/// Observes the masters while all are up, until it is aborted.
pub(super) async fn watch(cluster: Arc<Cluster>, keys: u32, recorder: Recorder) {
    let mut sightings = Sightings::new(None, |record| recorder.note(record));
    let mut connections: [Option<MultiplexedConnection>; 2 * MASTERS] = Default::default();
    loop {
        {
            let cluster = cluster.up().await;
            let at = clock::now();
            for number in 0..keys {
                let name = name_of(number);
                if let Some(owners) = owners(&cluster, &mut connections, &name).await {
                    sightings.observe(&format!("k{number}"), &owners, at);
                }
            }
        }
        sleep(POLL).await;
    }
}

/// Returns the owners of a lock at the master of its slot; `None` if no master serves it.
async fn owners(
    cluster: &RedisCluster,
    connections: &mut [Option<MultiplexedConnection>],
    name: &str,
) -> Option<Vec<String>> {
    let mut look = redis::pipe();
    eye::look(&mut look, name);
    for (n, connection) in connections.iter_mut().enumerate() {
        let mut known = match connection.take() {
            Some(known) => known,
            None => cluster.node(n).connection().await,
        };
        let state: Result<eye::LockState, redis::RedisError> = look.query_async(&mut known).await;
        match state {
            Ok(state) => {
                *connection = Some(known);
                return Some(eye::owners(state));
            }
            // The slot has moved, or this node is a replica.
            Err(error) if !error.is_io_error() => *connection = Some(known),
            // The connection is from before a kill, and is replaced.
            Err(_) => {}
        }
    }
    None
}
