//! The command line.

use std::{ffi::OsString, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use rustix::process::Signal;

use crate::{
    doctor::DoctorOptions,
    duration::{self, Limit},
    inspect::InspectOptions,
    ls::LsOptions,
    manual,
    release::ReleaseOptions,
    run::signals,
    top::TopOptions,
};

/// Distributed locks on Redis or Valkey, from the command line.
///
/// A lock is held by one process at a time, on any machine. It is renewed while it is held, and is free after its
/// lease if its holder dies.
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
    pub(crate) log: LogOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Holds locks while a command runs
    Run(RunOptions),
    /// Waits until a lock is free, and takes nothing
    Wait(WaitOptions),
    /// Lists the locks that are held, and their holders
    Ls(LsOptions),
    /// Shows one lock: its holder, its lease, and who waits for it
    Inspect(InspectOptions),
    /// Takes a lock from its holder
    Release(ReleaseOptions),
    /// Shows the locks that are held as a live table, those with the most waiters first
    Top(TopOptions),
    /// Checks whether the servers of a store are fit for locks
    Doctor(DoctorOptions),
    /// Prints the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the manual page of `rlock` or of a subcommand
    Man {
        /// The subcommand
        subcommand: Option<String>,
    },
}

/// What is logged, and how.
#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// Logs errors only: nothing when a lock is taken
    #[arg(
        short,
        long,
        global = true,
        display_order = 100,
        conflicts_with = "verbose"
    )]
    pub(crate) quiet: bool,
    /// Logs more: each step, or details if given twice
    #[arg(short, long, global = true, display_order = 101, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Writes log lines and data as JSON, one object a line
    #[arg(long, global = true, display_order = 102)]
    pub(crate) json: bool,
}

/// Where the locks are.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// The URL of the store; several URLs are the servers of a quorum
    ///
    /// `redis://host:6379/`, `rediss://…` for TLS, `unix:///path`, `redis-sentinel://host1,host2,host3/service` or
    /// `redis-cluster://host1,host2,host3`. Repeat the option for each server of a quorum, or separate the URLs by
    /// spaces. Other users of the machine can read arguments: pass a URL with a password in `RLOCK_URL`.
    #[arg(
        long = "url",
        env = "RLOCK_URL",
        hide_env_values = true,
        value_name = "URL",
        value_delimiter = ' ',
        required = true
    )]
    pub(crate) urls: Vec<String>,
    /// The prefix of the names of keys on the server
    ///
    /// Processes exclude each other only under the same prefix.
    #[arg(long, env = "RLOCK_PREFIX", default_value = "lock:")]
    pub(crate) prefix: String,
}

/// The options of `rlock run`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::RUN))]
pub(crate) struct RunOptions {
    /// What to lock; several keys are acquired together, all or none
    #[arg(short, long = "key", value_name = "KEY", required = true, num_args = 1..)]
    pub(crate) keys: Vec<String>,
    /// How long to wait for the locks: a duration, or `forever`
    #[arg(
        short,
        long,
        env = "RLOCK_WAIT",
        value_name = "DURATION",
        default_value = "forever",
        value_parser = duration::wait
    )]
    pub(crate) wait: Limit,
    /// Does not wait for a lock that is taken; takes precedence over `--wait`
    #[arg(short, long)]
    pub(crate) no_wait: bool,
    /// How long the store keeps a lock without renewal, after a crash for example
    #[arg(
        long,
        env = "RLOCK_LEASE",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::lease
    )]
    pub(crate) lease: Duration,
    /// How long the locks may be held; after that time they count as lost
    #[arg(long, value_name = "DURATION", value_parser = duration::max_hold)]
    pub(crate) max_hold: Option<Duration>,
    /// Keeps the locks for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration::at_least)]
    pub(crate) at_least: Option<Duration>,
    /// The exit status when the locks are not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// What happens to the command when a lock is lost
    #[arg(long, value_enum, value_name = "ACTION", default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// The signal that stops the command when a lock is lost
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub(crate) signal: Signal,
    /// How long after that signal the command is killed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5s",
        value_parser = duration::kill_after
    )]
    pub(crate) kill_after: Duration,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What happens to the command when a lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Stops it: `--signal`, and KILL after `--kill-after`
    Term,
    /// Lets it run on, and logs the loss
    Continue,
}

/// The options of `rlock wait`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::WAIT))]
pub(crate) struct WaitOptions {
    /// The lock to wait for
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// How long to wait: a duration, or `forever`
    #[arg(
        short,
        long,
        env = "RLOCK_WAIT",
        value_name = "DURATION",
        default_value = "forever",
        value_parser = duration::wait
    )]
    pub(crate) wait: Limit,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}
