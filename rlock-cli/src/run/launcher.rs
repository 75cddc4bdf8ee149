//! Becomes the command: a process of `rlock` that joins the process group, and then execs the command.
//!
//! Only the process itself can ask to be told of its parent's death, and can take the terminal without a race.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
};

use rustix::process::{Pid, Signal, getpgrp, getpid, getppid};

use super::{signals, terminal::set_foreground};
use crate::{
    exit::Status,
    log::{self, LogOptions},
};

/// The first argument of such a process.
const NAME: &str = "__exec";

/// What the command is started with.
pub(crate) struct Launch<'a> {
    /// The signal that the command receives when `rlock` dies, where the system supports that.
    pub(crate) on_death: Signal,
    pub(crate) takes_terminal: bool,
    pub(crate) json: bool,
    pub(crate) command: &'a [OsString],
}

impl Launch<'_> {
    /// Returns the command to spawn.
    pub(crate) fn command(&self) -> Result<Command, io::Error> {
        let mut command = Command::new(this_program()?);
        let flag = |is_set: bool| if is_set { "1" } else { "0" };
        command
            .arg0("rlock")
            .arg(NAME)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(signals::name(self.on_death))
            .args([flag(self.takes_terminal), flag(self.json)])
            .args(self.command);
        Ok(command)
    }
}

/// Returns a path to this program that is right even after the file was replaced.
fn this_program() -> Result<PathBuf, io::Error> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    env::current_exe()
}

/// The request to become the command.
pub(crate) struct Request {
    parent: OsString,
    on_death: Option<Signal>,
    takes_terminal: bool,
    json: bool,
    program: OsString,
    arguments: Vec<OsString>,
}

/// Returns the request that the arguments of this process are, if they are one.
pub(crate) fn requested() -> Option<Request> {
    let mut arguments = env::args_os().skip(1);
    arguments.next().filter(|name| name == NAME)?;
    let mut next = || arguments.next();
    let (parent, signal) = (next()?, next()?);
    Some(Request {
        parent,
        on_death: signal.to_str().and_then(|name| signals::parse(name).ok()),
        takes_terminal: next()? == "1",
        json: next()? == "1",
        program: next()?,
        arguments: arguments.collect(),
    })
}

impl Request {
    /// Becomes the command. Returns the exit status if that fails.
    pub(crate) fn exec(self) -> Status {
        if let Some(signal) = self.on_death
            && !self.follow_parent(signal)
        {
            return signal.into();
        }
        if self.takes_terminal {
            set_foreground(io::stdin(), getpgrp());
        }
        let error = Command::new(&self.program).args(&self.arguments).exec();
        let options = LogOptions {
            quiet: true,
            verbose: 0,
            json: self.json,
        };
        log::install(&options, false);
        let (status, reason) = match error.kind() {
            ErrorKind::NotFound if !exists(&self.program) => {
                (Status::NOT_FOUND, "it was not found".to_owned())
            }
            _ => (Status::CANNOT_EXECUTE, error.to_string()),
        };
        let program = self.program.display();
        tracing::error!(
            status = status.code(),
            "could not execute `{program}`: {reason}"
        );
        status
    }

    /// Asks the system to send the signal when the parent dies. Returns whether the parent is still alive.
    fn follow_parent(&self, signal: Signal) -> bool {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_parent_process_death_signal(Some(signal));
        #[cfg(not(target_os = "linux"))]
        let _ = signal;
        let parent = getppid().map(Pid::as_raw_nonzero);
        parent.is_some_and(|parent| *parent.to_string() == *self.parent)
    }
}

/// Returns whether the file is there: its interpreter is what is missing then.
fn exists(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/') && PathBuf::from(program).exists()
}
