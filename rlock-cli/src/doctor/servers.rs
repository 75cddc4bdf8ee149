//! The servers of a store: those that the URLs name, and those that they know of.

use std::{collections::HashMap, iter};

use redis::{RedisResult, Value, cmd};
use rlock_core::__private::probe::{ClusterEndpoint, Endpoint, Probed, ServerEndpoint};
use tokio::task::JoinHandle;

use super::{
    checks::{Part, Store, report},
    connection::{open, reason},
    findings::{Finding, Report},
    grant,
};
use crate::exit::{Failure, Status};

const SLOTS: u32 = 16_384;

/// Examines all servers of a store.
pub(super) async fn examine(
    endpoint: Endpoint,
    urls: &[&str],
    prefix: &str,
) -> Result<Vec<Report>, Failure> {
    let store = |is_cluster| Store {
        prefix: prefix.to_owned(),
        is_cluster,
    };
    match endpoint {
        Endpoint::Memory(_) => Ok(Vec::new()),
        Endpoint::Quorum(members) => quorum(members, urls, &store(false)).await,
        Endpoint::Cluster(nodes) => {
            let mut reports = cluster(nodes, &store(true)).await?;
            grant::check(&mut reports, urls[0], prefix).await;
            Ok(reports)
        }
        Endpoint::Server(server) => {
            let mut reports = one_server(server, Part::Master, &store(false)).await;
            grant::check(&mut reports, urls[0], prefix).await;
            let is_reached = reports.iter().any(|report| report.is_reachable);
            if is_reached {
                Ok(reports)
            } else {
                Err(unreachable(&reports))
            }
        }
    }
}

/// Returns the failure to reach a store.
fn unreachable(reports: &[Report]) -> Failure {
    let lost = reports.iter().filter(|report| !report.is_reachable);
    let text = |report: &Report| {
        let text = report.findings.first().map_or("", |finding| &finding.text);
        format!("{}: {text}", report.server)
    };
    let texts: Vec<String> = lost.map(text).collect();
    Failure::new(Status::UNAVAILABLE, texts.join("; "))
}

/// Examines one server, or the master, the replicas and the Sentinels of a service.
async fn one_server(server: ServerEndpoint, part: Part, store: &Store) -> Vec<Report> {
    match server {
        ServerEndpoint::Fixed(info) => vec![report(info.into(), part, store.clone()).await],
        ServerEndpoint::Master {
            service,
            sentinels,
            master,
        } => {
            let sentinels = sentinels.into_iter().map(Probed::from).collect();
            service_of(&service, sentinels, &Probed::from(master), part, store).await
        }
    }
}

async fn quorum(
    members: Vec<ServerEndpoint>,
    urls: &[&str],
    store: &Store,
) -> Result<Vec<Report>, Failure> {
    let (count, majority) = (members.len(), members.len() / 2 + 1);
    let (mut reports, mut reached) = (Vec::new(), 0);
    for (member, url) in members.into_iter().zip(urls) {
        let mut of_member = one_server(member, Part::Member, store).await;
        grant::check(&mut of_member, url, &store.prefix).await;
        reached += usize::from(of_member.iter().any(|report| report.is_reachable));
        reports.extend(of_member);
    }
    if reached < majority {
        return Err(unreachable(&reports));
    }
    let mut voters: HashMap<String, String> = HashMap::new();
    for report in &mut reports {
        let Some(run_id) = report.run_id.clone() else {
            continue;
        };
        if let Some(other) = voters.insert(run_id, report.server.clone()) {
            let text = format!("is the same server as {other}, and would vote twice; name it once");
            report.findings.push(Finding::harm("identity", text));
        }
    }
    let spare = count - majority;
    let text = format!("{count} servers, of which {spare} may fail");
    let finding = if count >= 3 && count % 2 == 1 {
        Finding::good("majority", text)
    } else {
        Finding::advice("majority", format!("{text}; use three or five"))
    };
    reports.push(Report::of("quorum".to_owned(), finding));
    Ok(reports)
}

/// The reply of a Sentinel about the master.
struct Opinion {
    epoch: u64,
    host: String,
    port: u16,
}

async fn service_of(
    service: &str,
    sentinels: Vec<Probed>,
    master: &Probed,
    part: Part,
    store: &Store,
) -> Vec<Report> {
    let (mut reports, mut opinions) = (Vec::new(), Vec::new());
    for sentinel in &sentinels {
        let heading = format!("{} (Sentinel)", sentinel.address());
        let mut report = match asked(sentinel, service).await {
            Ok(opinion) => {
                let text = format!("`{service}` is at {}:{}", opinion.host, opinion.port);
                opinions.push(opinion);
                Report::of(heading, Finding::good("master", text))
            }
            Err(text) => Report::of(heading, Finding::advice("connection", text)),
        };
        // Whether the store can be reached depends on the master.
        report.is_reachable = false;
        reports.push(report);
    }
    let Some(newest) = opinions.iter().max_by_key(|opinion| opinion.epoch) else {
        return reports;
    };
    let named = |opinion: &&Opinion| (&opinion.host, opinion.port) == (&newest.host, newest.port);
    if opinions.iter().filter(named).count() * 2 <= sentinels.len() {
        let text = "no majority of the Sentinels names this master, so it may be an isolated one";
        let heading = format!("{service} (service)");
        reports.push(Report::of(heading, Finding::harm("master", text)));
    }
    let server = master.at(newest.host.clone(), newest.port);
    reports.extend(with_replicas(server, part, store).await);
    reports
}

/// Examines a master and the replicas that it knows.
async fn with_replicas(master: Probed, part: Part, store: &Store) -> Vec<Report> {
    let replicas = replicas_of(&master).await;
    let replicas = replicas
        .into_iter()
        .map(|(host, port)| (master.at(host, port), Part::Replica));
    let servers: Vec<_> = iter::once((master.clone(), part)).chain(replicas).collect();
    // At the same time.
    let begun: Vec<JoinHandle<Report>> = servers
        .into_iter()
        .map(|(server, part)| tokio::spawn(report(server, part, store.clone())))
        .collect();
    let mut reports = Vec::with_capacity(begun.len());
    for report in begun {
        reports.extend(report.await.ok());
    }
    reports
}

async fn asked(sentinel: &Probed, service: &str) -> Result<Opinion, String> {
    let failed = |error| format!("cannot be asked: {}", reason(&error));
    let mut opened = open(sentinel).await.map_err(failed)?;
    let mut master = cmd("SENTINEL");
    master.arg("MASTER").arg(service);
    let reply: RedisResult<HashMap<String, String>> =
        master.query_async(&mut opened.connection).await;
    let reply = reply.map_err(failed)?;
    let number = |name: &str| reply.get(name)?.parse::<u64>().ok();
    let opinion = || {
        Some(Opinion {
            epoch: number("config-epoch")?,
            host: reply.get("ip")?.clone(),
            port: u16::try_from(number("port")?).ok()?,
        })
    };
    opinion().ok_or_else(|| "names no master".to_owned())
}

/// Returns the replicas that a master knows.
async fn replicas_of(master: &Probed) -> Vec<(String, u16)> {
    let Ok(mut opened) = open(master).await else {
        return Vec::new();
    };
    let info: RedisResult<String> = cmd("INFO")
        .arg("replication")
        .query_async(&mut opened.connection)
        .await;
    let info = info.unwrap_or_default();
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

async fn cluster(named: ClusterEndpoint, store: &Store) -> Result<Vec<Report>, Failure> {
    let (any, mut failures) = (Probed::from(named.node), Vec::new());
    for (host, port) in named.nodes {
        let node = any.at(host, port);
        match slots(&node).await {
            Ok(slots) => {
                let covered = match slots.covered {
                    SLOTS => Finding::good("slots", format!("all {SLOTS} have a master")),
                    covered => Finding::harm(
                        "slots",
                        format!(
                            "{} have no master, and their locks are refused",
                            SLOTS - covered
                        ),
                    ),
                };
                let mut reports = vec![Report {
                    grants_locks: true,
                    ..Report::of("cluster".to_owned(), covered)
                }];
                for (host, port) in slots.masters {
                    let master = node.at(host, port);
                    reports.extend(with_replicas(master, Part::Master, store).await);
                }
                return Ok(reports);
            }
            Err(text) => failures.push(format!("{}: {text}", node.address())),
        }
    }
    Err(Failure::new(Status::UNAVAILABLE, failures.join("; ")))
}

struct Slots {
    covered: u32,
    masters: Vec<(String, u16)>,
}

/// Asks a node who has which slots.
async fn slots(node: &Probed) -> Result<Slots, String> {
    let failed = |error| format!("cannot be asked for the slots: {}", reason(&error));
    let mut opened = open(node).await.map_err(failed)?;
    let reply: RedisResult<Vec<Vec<Value>>> = cmd("CLUSTER")
        .arg("SLOTS")
        .query_async(&mut opened.connection)
        .await;
    let mut slots = Slots {
        covered: 0,
        masters: Vec::new(),
    };
    for range in reply.map_err(failed)? {
        let mut range = range.into_iter();
        if let (Some(Value::Int(first)), Some(Value::Int(last))) = (range.next(), range.next()) {
            slots.covered += u32::try_from(last - first + 1).unwrap_or(0);
        }
        // Behind the master are its replicas, as far as they have data.
        let master = range.next().and_then(address);
        slots
            .masters
            .extend(master.filter(|master| !slots.masters.contains(master)));
    }
    Ok(slots)
}

/// Returns the address of a node: host, port and the other fields of the reply.
fn address(server: Value) -> Option<(String, u16)> {
    let Value::Array(facts) = server else {
        return None;
    };
    let mut facts = facts.into_iter();
    let host: String = redis::from_redis_value(facts.next()?).ok()?;
    let port = redis::from_redis_value(facts.next()?).ok()?;
    (!host.is_empty()).then_some((host, port))
}
