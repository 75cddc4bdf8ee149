//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{network::Network, pace::Pace, scenario::Scenario, worker::Role};

/// Measures this framework beside floors and peers, on a redis-server that it starts itself.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Takes two to three minutes instead of ten: the figures are rougher, and some are left out.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measures this scenario alone; may be given several times.
    #[arg(long, value_name = "SCENARIO")]
    pub(crate) only: Vec<Scenario>,
    /// Measures over this network alone.
    #[arg(long)]
    pub(crate) network: Option<Network>,
    /// How many rounds; the figures are their medians.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
    /// Where the figures go as JSON; `target/bench/results.json` if not given.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Where the chart goes; `target/bench/results.svg` if not given.
    #[arg(long, value_name = "PATH")]
    pub(crate) svg: Option<PathBuf>,
    /// Keeps every core busy with the lowest priority. What a machine takes to wake a core that sleeps
    /// may be several times what a request takes, and varies; this leaves it out.
    #[arg(long)]
    pub(crate) awake: bool,
    /// Ends with an error if a bound does not hold.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What the benchmark starts again as a process of its own.
    #[command(subcommand, hide = true)]
    Worker(Role),
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
            Scenario::USUAL.to_vec()
        } else {
            self.only.clone()
        }
    }
}
