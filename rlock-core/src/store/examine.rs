//! Finds the servers that `diagnose::store` and `rlock doctor` examine: those of the URLs, and those that they know of.

mod checks;
mod clock;
mod connection;
#[cfg(feature = "postgres")]
mod database;
mod findings;
mod info;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod schema;

use std::{collections::HashMap, iter};

use futures_util::future::join_all;
use redis::{RedisError, RedisResult, Value, cmd};
use rlock_proto::{quorum::majority, store::HashSlot};

#[cfg(feature = "postgres")]
pub(crate) use self::database::database;
pub(crate) use self::findings::ServerReport;
pub use self::findings::{Finding, Severity};
use self::{checks::report, connection::Peer, findings::Part};
use super::{
    cluster::slots::{Layout, NodeAddr},
    endpoint::{ClusterEndpoint, ServerEndpoint},
    options::StoreOptions,
    redis::{
        errors::without_kind,
        sentinel,
        sentinel::{Master, Named},
    },
};

/// Examines the server that has all locks, and those around it.
pub(crate) async fn server(endpoint: ServerEndpoint, options: &StoreOptions) -> Vec<ServerReport> {
    one_server(endpoint, Part::Master, options).await
}

/// Examines a server of a quorum, and those around it.
pub(crate) async fn member(endpoint: ServerEndpoint, options: &StoreOptions) -> Vec<ServerReport> {
    one_server(endpoint, Part::Member, options).await
}

/// Examines one server, or the master, the replicas and the Sentinels of a service.
async fn one_server(
    endpoint: ServerEndpoint,
    part: Part,
    options: &StoreOptions,
) -> Vec<ServerReport> {
    match endpoint {
        ServerEndpoint::Fixed(info) => vec![report(Peer::new(info, options), part).await],
        ServerEndpoint::Master {
            service,
            sentinels,
            master,
        } => {
            let sentinels = sentinels.into_iter();
            let sentinels: Vec<_> = sentinels
                .map(|info| Peer::sentinel(info, options))
                .collect();
            service_of(&service, &sentinels, &Peer::new(master, options), part).await
        }
    }
}

/// Adds the findings about the members of a quorum together.
pub(crate) fn whole_quorum(reports: &mut Vec<ServerReport>, members: usize) {
    let mut voters: HashMap<String, String> = HashMap::new();
    for report in &mut *reports {
        let Some(run_id) = report.run_id.clone() else {
            continue;
        };
        if let Some(other) = voters.insert(run_id, report.server().to_owned()) {
            let text = format!("is the same server as {other}, and would vote twice");
            report.add(Finding::harm("identity", text).with_remedy("name it once"));
        }
    }
    let spare = members - majority(members);
    let text = format!("{members} servers, of which {spare} may fail");
    let finding = if members >= 3 && members % 2 == 1 {
        Finding::good("majority", text)
    } else {
        Finding::advice("majority", text).with_remedy("use three or five")
    };
    reports.push(ServerReport::of("quorum", finding));
}

/// Returns why servers cannot be reached.
pub(crate) fn failures(reports: &[ServerReport]) -> String {
    let lost = reports.iter().filter(|report| !report.is_reachable);
    lost.map(ServerReport::failure)
        .collect::<Vec<_>>()
        .join("; ")
}

async fn service_of(
    service: &str,
    sentinels: &[Peer],
    master: &Peer,
    part: Part,
) -> Vec<ServerReport> {
    let (mut reports, mut named) = (Vec::new(), Vec::new());
    for sentinel in sentinels {
        let finding = match asked(sentinel, service).await {
            Ok(Named { master, .. }) => {
                let text = format!("`{service}` is at {}:{}", master.host, master.port);
                named.push(master);
                Finding::good("master", text)
            }
            Err(error) => {
                let text = format!("cannot be asked: {}", without_kind(&error));
                Finding::advice("connection", text)
            }
        };
        let heading = format!("{} (Sentinel)", sentinel.address());
        reports.push(ServerReport::of(&heading, finding));
    }
    let Some(newest) = named.iter().max_by_key(|master| master.epoch) else {
        return reports;
    };
    let Master { host, port, .. } = newest;
    let agree = named
        .iter()
        .filter(|one| (&one.host, &one.port) == (host, port));
    if agree.count() < majority(sentinels.len()) {
        let text = "no majority of the Sentinels names this master, so it may be an isolated one";
        let heading = format!("{service} (service)");
        reports.push(ServerReport::of(&heading, Finding::harm("master", text)));
    }
    let server = master.at(host.clone(), *port);
    reports.extend(with_replicas(server, part).await);
    reports
}

async fn asked(peer: &Peer, service: &str) -> RedisResult<Named> {
    let mut opened = peer.open().await?;
    sentinel::ask(&mut opened.connection, service).await
}

/// Examines a master and the replicas that it knows, all at once.
async fn with_replicas(master: Peer, part: Part) -> Vec<ServerReport> {
    let replicas = replicas_of(&master).await.into_iter();
    let replicas = replicas.map(|(host, port)| (master.at(host, port), Part::Replica));
    let servers = iter::once((master.clone(), part)).chain(replicas);
    join_all(servers.map(|(peer, part)| report(peer, part))).await
}

/// Returns the replicas that a master knows.
async fn replicas_of(master: &Peer) -> Vec<(String, u16)> {
    let info = cmd("INFO").arg("replication").take();
    let info: String = master.query(&info).await.unwrap_or_default();
    let replicas = info.lines().filter(|line| {
        let name = line.strip_prefix("slave").unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_digit())
    });
    let address = |line: &str| {
        let facts = line.split_once(':')?.1;
        let fact = |name: &str| facts.split(',').find_map(|fact| fact.strip_prefix(name));
        Some((fact("ip=")?.to_owned(), fact("port=")?.parse().ok()?))
    };
    replicas.filter_map(address).collect()
}

/// Examines the masters of a cluster and their replicas. Returns an error if no node knows the masters.
pub(crate) async fn cluster(
    named: ClusterEndpoint,
    options: &StoreOptions,
) -> Result<Vec<ServerReport>, String> {
    let (any, mut failures) = (Peer::node(named.node, options), Vec::new());
    for (host, port) in named.nodes {
        let addr = NodeAddr { host, port };
        let node = any.at(addr.host.clone(), addr.port);
        let layout = match slots(&node).await {
            Ok(slots) => Layout::read("", &slots, &addr),
            Err(error) => {
                let reason = without_kind(&error);
                failures.push(format!("{addr}: cannot be asked for the slots: {reason}"));
                continue;
            }
        };
        let ranges = layout.map_or_else(Vec::new, |layout| layout.ranges);
        let mut reports = vec![coverage(&ranges)];
        let mut masters: Vec<NodeAddr> = Vec::new();
        for (_, _, master) in ranges {
            if !masters.contains(&master) {
                masters.push(master);
            }
        }
        for NodeAddr { host, port } in masters {
            reports.extend(with_replicas(node.at(host, port), Part::Master).await);
        }
        return Ok(reports);
    }
    Err(failures.join("; "))
}

/// Reports whether every slot of a cluster has a master.
fn coverage(ranges: &[(u16, u16, NodeAddr)]) -> ServerReport {
    let sizes = ranges
        .iter()
        .map(|(first, last, _)| u32::from(last - first) + 1);
    let free = u32::from(HashSlot::COUNT).saturating_sub(sizes.sum());
    let mut report = ServerReport::new("cluster", true);
    report.is_reachable = true;
    report.add(if free == 0 {
        Finding::good("slots", format!("all {} have a master", HashSlot::COUNT))
    } else {
        let text = format!("{free} have no master, and their locks are refused");
        Finding::harm("slots", text)
    });
    report
}

/// Asks a node who has which slots.
async fn slots(node: &Peer) -> Result<Value, RedisError> {
    node.query(cmd("CLUSTER").arg("SLOTS")).await
}
