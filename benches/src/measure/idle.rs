//! Locks that are held and renewed, and their cost for the client.
//!
//! Each contestant has its own process and server. This framework and the floors run in parallel.
//! Peers do, too, if there are few locks. With many locks they are always busy, so they run one
//! after another.

use std::time::Duration;

use anyhow::Result;
use redis::InfoDict;
use rlock_testkit::{RedisServer, Worker};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Plan;
use crate::{
    contestant::Kind,
    metric::Metric,
    network::{Network, Route},
    results::Results,
    runtime,
    worker::{self, Cost, Role},
};

/// The number of windows before the first that counts. Locks of different ages may converge to
/// common renewals. The last of these windows counts commands, because `MONITOR` costs the server
/// more than the renewals.
const SETTLING: usize = 3;

/// A measurement of held locks.
pub(super) struct Idle<'a> {
    pub(super) locks: usize,
    /// The lease, which is renewed after each third. A window takes a third.
    pub(super) lease: Duration,
    pub(super) peers: &'a [Kind],
    /// Whether peers run in parallel with the others.
    pub(super) together: bool,
    /// Whether commands are counted.
    pub(super) counted: bool,
}

pub(super) fn run(plan: &Plan, idle: &Idle<'_>) -> Result<Results> {
    runtime::current_thread()?.block_on(measure(plan, idle))
}

async fn measure(plan: &Plan, idle: &Idle<'_>) -> Result<Results> {
    let mut results = plan.results(Kind::Pexpire);
    results.apart = !idle.together;
    let mut first = vec![Kind::Pexpire, Kind::PexpireScript, Kind::Ours];
    let renewing = idle.peers.iter().copied();
    let mut later: Vec<Kind> = renewing.filter(|kind| *kind != Kind::RedisLock).collect();
    if idle.together {
        first.append(&mut later);
    }
    let turns = [first].into_iter();
    for kinds in turns.chain(later.into_iter().map(|kind| vec![kind])) {
        let mut holders = Vec::new();
        for kind in kinds {
            holders.push(Holder::start(kind, plan.network, idle).await?);
        }
        windows(&mut results, &mut holders, plan.pace.windows, idle).await?;
        results.added = holders[0].route.added()?;
        for holder in &mut holders {
            let lost = super::count(holder.lost().await?);
            results.add(holder.kind, vec![(Metric::Lost, lost)]);
        }
    }
    Ok(results)
}

/// A process that holds locks, and its server.
struct Holder {
    kind: Kind,
    worker: Worker,
    route: Route,
    server: RedisServer,
    /// The number of known losses at the last query.
    known_lost: usize,
}

impl Holder {
    async fn start(kind: Kind, network: Network, idle: &Idle<'_>) -> Result<Self> {
        let server = RedisServer::start();
        let route = network.reach([&server]).await?;
        let role = Role::Idle {
            kind,
            url: route.url(),
            count: idle.locks,
            lease: u64::try_from(idle.lease.as_millis())?,
        };
        Ok(Self {
            kind,
            worker: worker::start(&role).await?,
            route,
            server,
            known_lost: 0,
        })
    }

    /// Returns the cost for the client, and the server's processor time in seconds since its start.
    async fn cost(&mut self) -> Result<(Cost, f64)> {
        let cost = worker::cost(&mut self.worker).await?;
        self.known_lost = cost.lost;
        let used: InfoDict = self.server.command(&["INFO", "cpu"]).await;
        let used = |name| used.get::<f64>(name).unwrap_or(f64::NAN);
        let server = used("used_cpu_user") + used("used_cpu_sys");
        Ok((cost, server))
    }

    /// Returns the number of lost locks: those that the client knows, or those that the server
    /// expired if these are more.
    async fn lost(&mut self) -> Result<usize> {
        // The server counts expired keys when it accesses them, so the query accesses all.
        let mut connection = self.server.connection().await;
        let mut cursor = 0;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("COUNT").arg(10_000);
            let (next, _): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let statistics: InfoDict = self.server.command(&["INFO", "stats"]).await;
        let expired = statistics.get("expired_keys").unwrap_or(usize::MAX);
        Ok(expired.max(self.known_lost))
    }
}

/// Measures each window, after the first ones.
async fn windows(
    results: &mut Results,
    holders: &mut [Holder],
    windows: usize,
    idle: &Idle<'_>,
) -> Result<()> {
    let locks = super::count(idle.locks);
    let length = idle.lease / 3;
    let mut ends = interval_at(Instant::now() + length, length);
    ends.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut commands = vec![0.0; holders.len()];
    let mut before = vec![0.0; holders.len()];
    let mut server_before = vec![0.0; holders.len()];
    for window in 0..SETTLING + windows {
        let mut watches = Vec::new();
        if idle.counted && window + 1 == SETTLING {
            for holder in &*holders {
                watches.push(holder.server.watch_commands().await);
            }
        }
        ends.tick().await;
        let mut costs = Vec::with_capacity(holders.len());
        for holder in &mut *holders {
            costs.push(holder.cost().await?);
        }
        let servers: Vec<f64> = costs.iter().map(|(_, server)| *server).collect();
        let server_before = std::mem::replace(&mut server_before, servers);
        for (index, mut watch) in watches.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
            let sent = watch.count().await as f64;
            commands[index] = sent / costs[index].0.seconds;
        }
        if window < SETTLING {
            continue;
        }
        for (index, (holder, (cost, server))) in holders.iter().zip(&costs).enumerate() {
            let per_second = |seconds: f64| seconds * 1e3 / cost.seconds;
            let per_lock = cost.resident / locks;
            let mut figures = vec![
                (Metric::ProcessorTime, per_second(cost.processor_seconds)),
                (
                    Metric::ServerProcessorTime,
                    per_second(server - server_before[index]),
                ),
            ];
            if window == SETTLING {
                before[index] = per_lock;
                if idle.counted {
                    figures.push((Metric::CommandsPerSecond, commands[index]));
                }
            }
            figures.push((Metric::BytesPerLock, per_lock));
            if window + 1 == SETTLING + windows {
                figures.push((Metric::Growth, per_lock - before[index]));
            }
            results.add(holder.kind, figures);
        }
    }
    Ok(())
}
