//! Checked histories: many clients take locks while everything that can fails around them; all that
//! happens is recorded, and the record is checked afterwards.
//!
//! The program that is run starts itself again for each client process. Everything goes by one clock
//! (`clock`) into one list of `record`s, which is a file that can be checked again.
//!
//! | module | its one idea |
//! | --- | --- |
//! | `options` | the command line |
//! | `schedule` | which fault comes when, from the seed alone |
//! | `run` | a run, from its start to what is left |
//! | `slot`, `network` | a client process and its proxies, and the faults that strike them |
//! | `fronts` | the proxies that all clients come by, and the faults that strike them |
//! | `ground`, `outage`, `cluster` | servers, and the faults that strike them |
//! | `memory` | a run of the embedded store |
//! | `client` | what a client process does |
//! | `resource` | what the locks protect: a register with a fence and one without |
//! | `watch` | what the server holds, seen from outside |
//! | `collect`, `history` | the records, and what the checks need of them |
//! | `check` | the properties |
//! | `report` | the outcome as text and as JSON |

mod check;
mod client;
mod clock;
mod cluster;
mod collect;
mod fronts;
mod ground;
mod history;
mod memory;
mod network;
mod options;
mod outage;
mod record;
mod report;
mod resource;
mod run;
mod schedule;
mod slot;
mod steps;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use self::{
    history::History,
    options::{Command, Options},
    report::Report,
};

/// What the exit code says besides 0, all is well.
const VIOLATED: u8 = 1;
/// The run is too small to prove anything.
const DOES_NOT_COUNT: u8 = 3;

/// Does what the command line says. The exit code is 0 if all properties hold, 1 if one does not, and 3 if the
/// run was too small to count.
#[must_use]
pub fn main() -> ExitCode {
    let options = Options::parse();
    let report = match &options.command {
        Some(Command::Client(own)) => {
            return if client::main(own) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
        Some(Command::Check { file }) => {
            let history = History::read(file)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
            Report::on(&history)
        }
        None => run::main(&options),
    };
    print!("{report}");
    if report.violated() {
        ExitCode::from(VIOLATED)
    } else if report.counts() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DOES_NOT_COUNT)
    }
}
