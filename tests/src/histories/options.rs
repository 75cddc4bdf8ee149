//! The command line.

use std::{fmt, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// Takes locks from many tasks in many processes while servers, networks and processes fail, records what
/// happened, and checks the record.
///
/// Exit code: 0 all properties hold; 1 one does not; 3 the run was too small to count.
#[derive(Clone, Debug, Parser)]
pub(super) struct Options {
    /// What is checked: locks on a redis-server, on the master that Sentinels know, on a cluster of six
    /// servers, on a majority of five servers, all behind proxies, or in the embedded store.
    #[arg(long, default_value_t = Kind::Redis)]
    pub(super) store: Kind,
    /// Which faults come when; any if not given. It is printed.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// How long the faults last; a few more seconds are spent on looking for what is left.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: u64,
    /// Leaves out the faults by which the server loses its data: then no overlap is excused.
    #[arg(long)]
    pub(super) keep_data: bool,
    /// With Sentinels: how many replicas have to have a lock before it counts as taken. There is one; then
    /// no overlap is excused after the master was killed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1))]
    pub(super) replicas: u32,
    /// How many locks.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) keys: u32,
    /// How many client processes at a time; with the embedded store, how many clients of one process.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) processes: u32,
    /// How many tasks use each client.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) tasks: u32,
    /// Fewer grants than this do not count; five a second if not given.
    #[arg(long)]
    pub(super) floor: Option<u64>,
    /// Where the history goes, a line of JSON for each event; nowhere if not given.
    #[arg(long, value_name = "PATH")]
    pub(super) out: Option<PathBuf>,
    /// Where the outcome goes as JSON.
    #[arg(long, value_name = "PATH", default_value = "target/histories.json")]
    pub(super) report: PathBuf,
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
    /// Checks a history that was recorded before.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// What the run starts again as a process of its own.
    #[command(hide = true)]
    Client(ClientOptions),
}

/// What a client process is told.
#[derive(Clone, Debug, Args)]
pub(super) struct ClientOptions {
    /// Of the servers of a quorum, if there are several.
    #[arg(long = "url", required = true)]
    pub(super) urls: Vec<String>,
    #[arg(long)]
    pub(super) resource: SocketAddr,
    #[arg(long)]
    pub(super) process: u32,
    #[arg(long)]
    pub(super) seed: u64,
    #[arg(long)]
    pub(super) keys: u32,
    #[arg(long)]
    pub(super) clients: u32,
    #[arg(long)]
    pub(super) tasks: u32,
    #[arg(long)]
    pub(super) replicas: u32,
}

/// Where locks live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Redis,
    Sentinel,
    Cluster,
    Quorum,
    Memory,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
