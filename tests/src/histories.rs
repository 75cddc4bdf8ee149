//! Checked histories: many clients acquire locks under all kinds of faults. The run records every
//! event, and then checks the record.
//!
//! The program starts itself again for each client process. All times come from one clock
//! (`clock`). All events become `record`s in one list, whose file can be checked again.
//!
//! | module | its one idea |
//! | --- | --- |
//! | `options` | the command line |
//! | `schedule` | the faults and their times, derived from the seed alone |
//! | `run` | a run, from its start to its leftovers |
//! | `slot`, `network` | a client process and its proxies, and their faults |
//! | `fronts` | the proxies that all clients share, and their faults |
//! | `ground`, `outage`, `cluster` | servers, and their faults |
//! | `memory` | a run of the embedded store |
//! | `client` | the work of a client process |
//! | `mode` | the modes of calls, and the keys that they are for |
//! | `resource` | the protected data: a register with a fence and one without |
//! | `watch` | the locks on the server, as an observer sees them |
//! | `record`, `text` | the records, and the lines that they are written as |
//! | `collect`, `history` | the records, reduced to what the checks need |
//! | `check` | the properties, by the rules of `rlock_model::witness` |
//! | `report` | the outcome as text |

mod check;
mod client;
pub mod clock;
mod cluster;
mod collect;
mod database;
mod fronts;
mod ground;
mod history;
mod memory;
mod mode;
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
mod text;
mod watch;

use std::{fs, path::Path, process::ExitCode};

use clap::Parser as _;

use self::{
    history::History,
    options::{Command, Options},
    report::Report,
};

/// Exit code: a property does not hold.
const VIOLATED: u8 = 1;
/// Exit code: the run is too small to prove anything.
const DOES_NOT_COUNT: u8 = 3;

/// Runs the command line. Exits with 0 if all properties hold, 1 if one does not, and 3 if the run
/// was too small to count.
#[must_use]
pub fn main() -> ExitCode {
    let options = Options::parse();
    let report = match &options.command {
        Some(Command::Client { options }) => {
            let own = serde_json::from_str(options).expect("a run has written it");
            return if client::main(&own) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
        Some(Command::Check { file }) => match check_file(file) {
            Ok(Some(report)) => report.kept_in(file.clone()),
            Ok(None) => return ExitCode::SUCCESS,
            Err(wrong) => {
                println!("{}: {wrong}", file.display());
                return ExitCode::from(VIOLATED);
            }
        },
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

/// Checks the history of a run, or the cases of a file of the corpus, for which there is no report.
fn check_file(file: &Path) -> Result<Option<Report>, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    if !check::has_cases(&text) {
        return Ok(Some(Report::on(&History::read(&text)?)));
    }
    println!("{}: {} cases", file.display(), check::check_cases(&text)?);
    Ok(None)
}
