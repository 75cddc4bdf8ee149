//! Lists the scenarios of the benchmark, with their titles.

use clap::ValueEnum;
use serde::Serialize;

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
    /// Locks in Postgres: one task, then four processes with four tasks each.
    Postgres,
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
}

impl Scenario {
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
            Self::Postgres => "Postgres: one task, then 4 processes with 4 tasks each, one key",
            Self::Readers => "64 tasks of one process that share one key",
            Self::ReadersAndWriter => {
                "4 processes with 16 readers each, and a writer every 100 ms, one key"
            }
            Self::Idle1000 => "1,000 idle held locks, renewed each second",
            Self::Idle10000 => "10,000 idle held locks, renewed each second",
            Self::Idle100000 => "100,000 idle held locks, leases of 12 s renewed every 4 s",
            Self::WaitersTasks => "1,000 waiters: tasks of one client, one key",
            Self::WaitersClients => "100 waiters: a client each, in one process, one key",
        }
    }
}
