//! The subcommands and options of `rlock`, as clap parses them.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    connect::StoreOptions, doctor::DoctorOptions, elect::ElectOptions, extend::ExtendOptions,
    inspect::InspectOptions, leader::LeaderOptions, log::LogOptions, ls::LsOptions,
    once::OnceOptions, postgres::PostgresCommand, release::ReleaseOptions, run::RunOptions,
    top::TopOptions, wait::WaitOptions,
};

/// Distributed locks on Redis, Valkey or Postgres, from the command line.
///
/// One process at a time holds a lock, on whatever machine it runs. `rlock` renews the lock while it is held, and if
/// its holder dies, the lock becomes free when its lease ends.
#[derive(Debug, Parser)]
#[command(
    name = "rlock",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Holds locks while a command runs
    Run(RunOptions),
    /// Runs a scheduled command on only one of the hosts that start it
    Once(OnceOptions),
    /// Runs a command on the host that leads an election, and campaigns again when it ends
    Elect(ElectOptions),
    /// Shows who leads an election
    Leader(LeaderOptions),
    /// Waits until a lock is free, without taking it
    Wait(WaitOptions),
    /// Lists the locks that are held, with their holders
    Ls(LsOptions),
    /// Shows one lock: its holder, its lease, and who waits for it
    Inspect(InspectOptions),
    /// Extends a lock whose token you have
    Extend(ExtendOptions),
    /// Makes a holder release its lock, or takes the lock from it
    Release(ReleaseOptions),
    /// Shows a live table of the locks that are held, those with the most waiters first
    Top(TopOptions),
    /// Checks whether the servers of a store are set up for safe locks
    Doctor(DoctorOptions),
    /// Prepares a Postgres database for locks
    #[command(subcommand, arg_required_else_help = true)]
    Postgres(PostgresCommand),
    /// Prints the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page of `rlock` or of a subcommand
    Man {
        /// The subcommand, such as `run` or `postgres schema`
        subcommand: Vec<String>,
    },
}
