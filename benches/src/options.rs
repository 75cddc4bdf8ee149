//! The command line of the benchmark.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum as _};

use crate::{network::Network, pace::Pace, scenario::Scenario};

/// Measures this framework, floors and peers on a redis-server that it starts.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Takes two to three minutes instead of ten. The figures are rougher, and some are left out.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measures only this scenario. May be repeated.
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) only: Vec<Scenario>,
    /// Measures only over this network.
    #[arg(long)]
    pub(crate) network: Option<Network>,
    /// The number of rounds. The figures are their medians.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
    /// The file for the figures as JSON. Defaults to `target/bench/results.json`.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// The figures of an earlier run as JSON. Prints a line that begins with `worse:` for each row of this framework whose ratio to
    /// the floor is worse by a tenth.
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,
    /// Keeps every core busy at the lowest priority. Waking a sleeping core may take several times
    /// as long as a request, and varies. This option leaves it out.
    #[arg(long)]
    pub(crate) awake: bool,
    /// Fails if a bound does not hold.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The process that the benchmark starts, with its [`Role`](crate::worker::Role) as JSON.
    #[command(hide = true)]
    Worker { role: String },
}

impl Options {
    pub(crate) fn pace(&self) -> Pace {
        let pace = if self.quick {
            Pace::quick()
        } else {
            Pace::full()
        };
        match self.rounds {
            Some(rounds) => pace.with_rounds(rounds.into()),
            None => pace,
        }
    }

    pub(crate) fn networks(&self) -> Vec<Network> {
        match self.network {
            Some(network) => vec![network],
            None => Network::ALL.to_vec(),
        }
    }

    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        if self.only.is_empty() {
            Scenario::value_variants().to_vec()
        } else {
            self.only.clone()
        }
    }
}
