//! Measures each scenario of the benchmark; each file in the directory is one of them.

mod cluster;
mod idle;
mod in_process;
mod one_key;
mod own_keys;
mod pair;
mod postgres;
mod processes;
mod quorum;
mod readers;
mod readers_and_writer;
mod retained;
mod waiters;

use std::time::Duration;

use anyhow::{Context as _, Result};
use redis::InfoDict;
use rlock_testkit::RedisServer;

use crate::{
    contestant::{Contestant, Kind, LEASE},
    grants::Grants,
    metric::{Figures, Metric},
    network::Network,
    pace::Pace,
    results::Results,
    scenario::Scenario,
};

/// Measures a scenario; `None` if the pace leaves it out.
pub(crate) fn measure(
    scenario: Scenario,
    pace: &Pace,
    network: Network,
) -> Result<Option<Results>> {
    let plan = &Plan {
        scenario,
        network,
        pace: pace.clone(),
    };
    Ok(Some(match scenario {
        Scenario::Pair => pair::run(plan)?,
        Scenario::PairThreads => pair::run_on_threads(plan)?,
        Scenario::Nested => pair::run_nested(plan)?,
        Scenario::OwnKeys => own_keys::run(plan)?,
        Scenario::Cluster => cluster::run(plan)?,
        Scenario::Quorum3 => quorum::run(plan, 3)?,
        Scenario::Quorum5 => quorum::run(plan, 5)?,
        Scenario::OneKey => one_key::run(plan)?,
        Scenario::Processes => processes::run(plan)?,
        Scenario::Retained => retained::run(plan)?,
        Scenario::Readers => readers::run(plan)?,
        Scenario::ReadersAndWriter => readers_and_writer::run(plan)?,
        Scenario::Postgres if network == Network::Delayed => return Ok(None),
        Scenario::Postgres => postgres::run(plan)?,
        Scenario::Idle10000 | Scenario::Idle100000 if pace.quick => return Ok(None),
        Scenario::Idle1000 => idle::run(plan, &idle(1_000, 3, &Kind::PEERS))?,
        Scenario::Idle10000 => idle::run(plan, &idle(10_000, 3, &Kind::PEERS))?,
        Scenario::Idle100000 => idle::run(plan, &idle(100_000, 12, &[]))?,
        Scenario::WaitersTasks => waiters::run_tasks(plan)?,
        Scenario::WaitersClients => waiters::run_clients(plan)?,
    }))
}

/// A scenario's network and pace.
#[derive(Clone)]
struct Plan {
    scenario: Scenario,
    network: Network,
    pace: Pace,
}

impl Plan {
    /// Returns results without figures.
    fn results(&self, floor: Kind) -> Results {
        Results::new(self.scenario, self.network, floor)
    }
}

/// Returns a measurement of held locks with leases of this many seconds.
fn idle(locks: usize, lease: u64, peers: &[Kind]) -> idle::Idle<'_> {
    idle::Idle {
        locks,
        lease: Duration::from_secs(lease),
        peers,
        together: locks <= 1_000,
        counted: locks <= 10_000,
    }
}

/// The key of contended locks.
const KEY: &str = "order:42";

/// The time inside before each measured run, long enough to notice two holders at once.
const STAY: Duration = Duration::from_micros(20);

/// A contestant with its client, on the runtime of all contestants.
struct Entrant {
    kind: Kind,
    client: Box<dyn Contestant>,
}

impl Entrant {
    async fn all(kinds: &[Kind], url: &str) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for &kind in kinds {
            let client = kind.connect(url, LEASE).await?;
            all.push(Self { kind, client });
        }
        Ok(all)
    }
}

/// Returns the commands of clients for each transfer of the lock.
fn commands_per_change(commands: u64, grants: &Grants) -> Figures {
    vec![(Metric::CommandsPerChange, per_change(commands, grants))]
}

#[expect(clippy::cast_precision_loss, reason = "counts of a second")]
fn per_change(commands: u64, grants: &Grants) -> f64 {
    commands as f64 / count(grants.changes(u64::MAX))
}

/// The number of commands that a server has executed, including those of scripts.
struct Executed {
    before: u64,
    /// The number of commands that a query of the count adds.
    look: u64,
}

impl Executed {
    async fn before(server: &RedisServer) -> Result<Self> {
        let (first, before) = (Self::read(server).await?, Self::read(server).await?);
        let look = before - first;
        Ok(Self { before, look })
    }

    /// Returns the number of commands since then for each transfer.
    async fn per_change(self, server: &RedisServer, grants: &Grants) -> Result<(Metric, f64)> {
        let commands = self.since(server).await?;
        Ok((Metric::ExecutedPerChange, per_change(commands, grants)))
    }

    /// Returns the number of commands since then for each of these reads.
    #[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
    async fn per_read(self, server: &RedisServer, reads: &Grants) -> Result<(Metric, f64)> {
        let commands = self.since(server).await? as f64;
        let reads = count(reads.grants.len());
        Ok((Metric::ExecutedPerRead, commands / reads))
    }

    async fn since(self, server: &RedisServer) -> Result<u64> {
        let since = Self::read(server).await? - self.before;
        Ok(since.saturating_sub(self.look))
    }

    async fn read(server: &RedisServer) -> Result<u64> {
        let statistics: InfoDict = server.command(&["INFO", "stats"]).await;
        statistics
            .get("total_commands_processed")
            .context("the server counts its commands")
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn count(count: usize) -> f64 {
    count as f64
}
