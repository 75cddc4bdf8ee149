//! The command `rlock`: runs programs under a distributed lock, shows locks, and takes them from their holders.

#[cfg(not(unix))]
compile_error!("rlock-cli supports Unix only: it relies on process groups and signals");

mod cli;
mod connect;
mod describe;
mod doctor;
mod duration;
mod elect;
mod exit;
mod extend;
mod hint;
mod inspect;
mod leader;
mod log;
mod ls;
mod manual;
mod once;
mod output;
mod postgres;
mod question;
mod release;
mod run;
mod table;
mod terminal;
mod text;
mod top;
mod user;
mod wait;

use std::{future::Future, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};
use tokio::runtime;

use crate::{
    cli::{Cli, Command},
    exit::{Failure, Status},
    run::launcher,
};

fn main() -> ExitCode {
    if let Some(launch) = launcher::requested() {
        return launch.exec().into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let status = Status::of_parse_error(&error);
            // If standard error is closed, the failure cannot be reported.
            let _ = hint::added_to(error).print();
            return status.into();
        }
    };
    let takes_locks = matches!(
        cli.command,
        Command::Run(_) | Command::Once(_) | Command::Elect(_)
    );
    log::install(&cli.log, takes_locks);
    let status = match cli.command {
        Command::Run(options) => block_on(run::run(&options, &cli.store, cli.log.json)),
        Command::Once(options) => block_on(once::once(&options, &cli.store, cli.log.json)),
        Command::Elect(options) => block_on(elect::elect(&options, &cli.store, cli.log.json)),
        Command::Leader(options) => block_on(leader::leader(&options, &cli.store, cli.log.json)),
        Command::Wait(options) => block_on(wait::wait(&options, &cli.store, cli.log.json)),
        Command::Ls(options) => block_on(ls::ls(&options, &cli.store, cli.log.json)),
        Command::Inspect(options) => block_on(inspect::inspect(&options, &cli.store, cli.log.json)),
        Command::Extend(options) => block_on(extend::extend(&options, &cli.store, cli.log.json)),
        Command::Release(options) => block_on(release::release(&options, &cli.store, cli.log.json)),
        Command::Doctor(options) => block_on(doctor::doctor(&options, &cli.store, cli.log.json)),
        Command::Top(options) => block_on(top::top(&options, &cli.store, cli.log.json)),
        Command::Postgres(command) => postgres::postgres(&command, &cli.store),
        Command::Completions { shell } => manual::completions(Cli::command(), shell),
        Command::Man { subcommand } => manual::page(Cli::command(), &subcommand),
    };
    status.unwrap_or_else(Failure::report).into()
}

/// Runs a subcommand on this thread. A child is told of the end of the thread that started it, and the
/// main thread lives as long as the process.
fn block_on(subcommand: impl Future<Output = Result<Status, Failure>>) -> Result<Status, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::own("start the runtime", &error))?
        .block_on(subcommand)
}
