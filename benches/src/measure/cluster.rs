//! Many tasks with uncontended locks, on a cluster of three masters and on one server.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, eventually};

use super::{Entrant, Plan, own_keys};
use crate::{
    contestant::{Kind, LEASE},
    network::{Network, Route},
    results::Results,
    runtime,
};

/// The limit for nodes to learn each other's ports.
const LEARNING: Duration = Duration::from_secs(30);

pub(super) fn run(plan: &Plan) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(plan))
}

async fn measure(plan: &Plan) -> Result<Results> {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start().await);
    let route = plan.network.reach([&server]).await?;
    let nodes = (0..2 * MASTERS).map(|n| cluster.node(n));
    let to_nodes = plan.network.reach(nodes).await?;
    if plan.network == Network::Delayed {
        announce(&cluster, &to_nodes).await;
    }
    let masters: Vec<String> = (0..MASTERS).map(|n| to_nodes.address(n)).collect();
    let url = format!("redis-cluster://{}", masters.join(","));
    let mut entrants = Vec::new();
    for (kind, url) in [(Kind::Ours, route.url()), (Kind::OursAtCluster, url)] {
        let client = Kind::Ours.connect(&url, LEASE).await?;
        entrants.push(Entrant { kind, client });
    }
    let mut results = plan.results(Kind::Ours);
    own_keys::measure_all(&mut results, &plan.pace, &entrants).await?;
    results.added = to_nodes.added()?;
    Ok(results)
}

/// Makes the nodes announce the ports of this route, so that redirections keep the delay.
async fn announce(cluster: &RedisCluster, route: &Route) {
    let ports: Vec<String> = (0..2 * MASTERS)
        .filter_map(|n| Some(route.address(n).rsplit_once(':')?.1.to_owned()))
        .collect();
    for (n, port) in ports.iter().enumerate() {
        let node = cluster.node(n);
        node.config_set("cluster-announce-port", port).await;
    }
    eventually(LEARNING, "all nodes announce their ports", async || {
        for n in 0..2 * MASTERS {
            let nodes: String = cluster.node(n).command(&["CLUSTER", "NODES"]).await;
            if !ports
                .iter()
                .all(|port| nodes.contains(&format!(":{port}@")))
            {
                return false;
            }
        }
        true
    })
    .await;
    cluster.settled().await;
}
