//! The scenarios of the benchmark, a file each.

mod cluster;
mod handovers;
mod idle;
mod in_process;
mod one_key;
mod own_keys;
mod pair;
mod processes;
mod quorum;
mod readers;
mod readers_and_writer;
mod retained;
mod waiters;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use redis::InfoDict;
use rlock_testkit::RedisServer;
use serde::Serialize;

use crate::{
    contestant::{Contestant, Kind, LEASE},
    grants::Grants,
    metric::{Figures, Metric},
    network::Network,
    pace::Pace,
    results::Results,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// One task, one uncontended lock.
    Pair,
    /// The same on a runtime of two threads.
    PairThreads,
    /// A nested call, and the same call without nesting.
    Nested,
    /// 64 tasks with a lock each.
    OwnKeys,
    /// 64 tasks with a lock each, at a cluster.
    Cluster,
    /// A quorum of three servers: one task, and 64 tasks with a lock each.
    #[value(name = "quorum-3")]
    Quorum3,
    /// Like `Quorum3`, with five servers.
    #[value(name = "quorum-5")]
    Quorum5,
    /// 16 tasks of one process, one lock.
    OneKey,
    /// Four processes with four tasks each, one lock.
    Processes,
    /// A lock that another process retains.
    Retained,
    /// 64 tasks of one process that share a lock.
    Readers,
    /// Four processes with 16 readers each, and a writer.
    ReadersAndWriter,
    /// 1,000 held locks.
    #[value(name = "idle-1000")]
    Idle1000,
    /// 10,000 held locks.
    #[value(name = "idle-10000")]
    Idle10000,
    /// 100,000 held locks.
    #[value(name = "idle-100000")]
    Idle100000,
    /// 1,000 tasks of one client, one lock.
    WaitersTasks,
    /// 100 clients with one task each, one lock.
    WaitersClients,
    /// Four processes with 32 tasks each, one lock, with different numbers of local hand-overs.
    /// Runs on request only.
    LocalHandovers,
}

impl Scenario {
    /// The scenarios that run by default.
    pub(crate) const USUAL: [Self; 17] = [
        Self::Pair,
        Self::PairThreads,
        Self::Nested,
        Self::OwnKeys,
        Self::Cluster,
        Self::Quorum3,
        Self::Quorum5,
        Self::OneKey,
        Self::Processes,
        Self::Retained,
        Self::Readers,
        Self::ReadersAndWriter,
        Self::Idle1000,
        Self::Idle10000,
        Self::Idle100000,
        Self::WaitersTasks,
        Self::WaitersClients,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pair => "Uncontended acquire and release, one task, one thread",
            Self::PairThreads => "The same task on a runtime of two threads",
            Self::Nested => "A nested call, and the same call without nesting",
            Self::OwnKeys => "64 tasks, a key each",
            Self::Cluster => {
                "64 tasks, a key each: a cluster of three masters, compared with one server"
            }
            Self::Quorum3 => "A quorum of three servers: one task, then 64 tasks with a key each",
            Self::Quorum5 => "A quorum of five servers: one task, then 64 tasks with a key each",
            Self::OneKey => "16 tasks of one process, one key",
            Self::Processes => "4 processes with 4 tasks each, one key",
            Self::Retained => "A key that another process retains and does not use",
            Self::Readers => "64 tasks of one process that share one key",
            Self::ReadersAndWriter => {
                "4 processes with 16 readers each, and a writer every 100 ms, one key"
            }
            Self::Idle1000 => "1,000 idle held locks, renewed each second",
            Self::Idle10000 => "10,000 idle held locks, renewed each second",
            Self::Idle100000 => "100,000 idle held locks, leases of 12 s renewed every 4 s",
            Self::WaitersTasks => "1,000 waiters: tasks of one client, one key",
            Self::WaitersClients => "100 waiters: a client each, in one process, one key",
            Self::LocalHandovers => "4 processes with 32 tasks each, one key: max_local_handovers",
        }
    }

    /// Measures this scenario; `None` if the pace leaves it out.
    pub(crate) fn run(self, pace: &Pace, network: Network) -> Result<Option<Results>> {
        let plan = &Plan {
            scenario: self,
            network,
            pace: pace.clone(),
        };
        Ok(Some(match self {
            Self::Pair => pair::run(plan)?,
            Self::PairThreads => pair::run_on_threads(plan)?,
            Self::Nested => pair::run_nested(plan)?,
            Self::OwnKeys => own_keys::run(plan)?,
            Self::Cluster => cluster::run(plan)?,
            Self::Quorum3 => quorum::run(plan, 3)?,
            Self::Quorum5 => quorum::run(plan, 5)?,
            Self::OneKey => one_key::run(plan)?,
            Self::Processes => processes::run(plan)?,
            Self::Retained => retained::run(plan)?,
            Self::Readers => readers::run(plan)?,
            Self::ReadersAndWriter => readers_and_writer::run(plan)?,
            Self::Idle10000 | Self::Idle100000 if pace.quick => return Ok(None),
            Self::Idle1000 => idle::run(plan, &idle(1_000, 3, &Kind::PEERS))?,
            Self::Idle10000 => idle::run(plan, &idle(10_000, 3, &Kind::PEERS))?,
            Self::Idle100000 => idle::run(plan, &idle(100_000, 12, &[]))?,
            Self::WaitersTasks => waiters::run_tasks(plan)?,
            Self::WaitersClients => waiters::run_clients(plan)?,
            Self::LocalHandovers => handovers::run(plan)?,
        }))
    }
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
