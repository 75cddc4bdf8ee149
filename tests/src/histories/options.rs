//! The command line of `histories`.

use std::{fmt, net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// Acquires locks from many tasks in many processes while servers, networks and processes fail.
/// Records a history, and checks it.
///
/// Exit code: 0 all properties hold; 1 one does not; 3 the run was too small to count.
#[derive(Clone, Debug, Parser)]
pub(super) struct Options {
    /// The store to check. Servers are behind proxies. `sentinel` is a master with Sentinels,
    /// `cluster` has six servers, and `quorum` has five.
    #[arg(long, default_value_t = Kind::Redis)]
    pub(super) store: Kind,
    /// The seed of the faults; random if not given. It is printed.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// The duration of the faults. The check for leftovers takes a few more seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: u64,
    /// Leaves out the faults by which the server loses data. Then no overlap is excused.
    #[arg(long)]
    pub(super) keep_data: bool,
    /// With Sentinels: the number of replicas that a lock requires. With one, no overlap is excused
    /// after a kill of the master.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1))]
    pub(super) replicas: u32,
    /// The number of locks.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) keys: u32,
    /// The number of client processes at a time. With the embedded store, the number of clients of
    /// one process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) processes: u32,
    /// The number of tasks for each client.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) tasks: u32,
    /// A run with fewer grants does not count. Defaults to five a second.
    #[arg(long)]
    pub(super) floor: Option<u64>,
    /// The file for the history, a line for each event. By default `target/histories/<store>-<seed>`, which is kept only if a property does not hold, or if a
    /// case was excused as a consequence of lost data or of a failover.
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

impl Options {
    pub(super) fn floor(&self) -> u64 {
        self.floor.unwrap_or(self.seconds * 5)
    }
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Checks the history of an earlier run, or the cases of a file in `corpus/histories`.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// The process that a run starts for its clients, with [`ClientOptions`] as JSON.
    #[command(hide = true)]
    Client { options: String },
}

/// The options of a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ClientOptions {
    /// The URLs of the servers of a quorum, if there are several.
    pub(super) urls: Vec<String>,
    pub(super) resource: SocketAddr,
    pub(super) process: u32,
    pub(super) seed: u64,
    pub(super) keys: u32,
    pub(super) clients: u32,
    pub(super) tasks: u32,
    pub(super) replicas: u32,
}

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Redis,
    Sentinel,
    Cluster,
    Quorum,
    Postgres,
    Memory,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
