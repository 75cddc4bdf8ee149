//! The exit status of each outcome, and the failures that lead to it.

use std::{fmt::Display, process::ExitCode};

use clap::error::ErrorKind;
use rlock_core::LockError;
use rustix::process::Signal;
use tracing::Level;

/// An exit status of `rlock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u8);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    /// The lock is free, or not held as the caller expects.
    pub(crate) const NOT_HELD: Self = Self(1);
    /// Wrong arguments, options or URLs (`EX_USAGE`).
    pub(crate) const USAGE: Self = Self(64);
    /// The store is unreachable or refuses the client (`EX_UNAVAILABLE`).
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// The lock was not acquired (`EX_TEMPFAIL`).
    pub(crate) const TAKEN: Self = Self(75);
    /// The window of a tick has ended, and the store has no record of a run. `sysexits.h` does not use this number.
    pub(crate) const MISSED: Self = Self(79);
    /// The lock was lost, and the command stopped.
    pub(crate) const LOST: Self = Self(124);
    /// `rlock` itself failed.
    pub(crate) const FAILED: Self = Self(125);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    pub(crate) fn new(status: u8) -> Self {
        Self(status)
    }

    /// Returns the status of a process that this signal ended, as shells report it.
    pub(crate) fn signalled(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// Returns the status after arguments that name no subcommand to run: help was asked for, or they are wrong.
    pub(crate) fn of_parse_error(error: &clap::Error) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Self::SUCCESS,
            _ => Self::USAGE,
        }
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.0)
    }
}

impl From<Signal> for Status {
    fn from(signal: Signal) -> Self {
        Self::signalled(signal.as_raw())
    }
}

/// A subcommand that failed: its exit status, and the line to log.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    level: Level,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        // A lock that is taken is an expected outcome: `--quiet` silences it.
        let level = match status {
            Status::TAKEN => Level::WARN,
            _ => Level::ERROR,
        };
        Self {
            status,
            level,
            message: message.into(),
        }
    }

    /// Makes this failure an outcome that only `--verbose` shows.
    pub(crate) fn expected(self) -> Self {
        Self {
            level: Level::INFO,
            ..self
        }
    }

    /// Returns a failure of `rlock` itself or of its system.
    pub(crate) fn own(action: &str, reason: &dyn Display) -> Self {
        Self::new(Status::FAILED, format!("could not {action}: {reason}"))
    }

    #[cfg(feature = "top")]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Logs the failure, and returns its status.
    pub(crate) fn report(self) -> Status {
        match self.level {
            Level::INFO => tracing::info!("{}", self.message),
            Level::WARN => tracing::warn!("{}", self.message),
            _ => tracing::error!("{}", self.message),
        }
        self.status
    }

    /// Logs the failure and returns the exit status that the user has chosen for its status, if there is one.
    pub(crate) fn or_chosen(self, chosen: &[(Status, u8)]) -> Result<Status, Self> {
        match chosen.iter().find(|(status, _)| *status == self.status) {
            Some((_, code)) => {
                self.report();
                Ok(Status::new(*code))
            }
            None => Err(self),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let status = match &error {
            LockError::Taken { .. } => Status::TAKEN,
            LockError::InvalidKey { .. } | LockError::InvalidOption { .. } => Status::USAGE,
            LockError::Unavailable { .. } | LockError::Refused { .. } => Status::UNAVAILABLE,
            LockError::Lost { .. } => Status::LOST,
            _ => Status::FAILED,
        };
        // With the holder, the hints and the reasons of the store.
        Self::new(status, format!("{error:#}"))
    }
}
