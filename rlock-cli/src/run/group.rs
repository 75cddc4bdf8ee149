//! Starts the command's process group, signals it, and waits for its end.

use std::{io, os::unix::process::CommandExt as _};

use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
    },
};

use tokio::signal::unix::{self, SignalKind};

use super::{environment::Environment, launcher::Launch};
use crate::exit::Status;

/// A process group: the command, its leader, and what the command started.
pub(crate) struct Group {
    leader: Pid,
    /// The exit status of the leader, once it has ended.
    status: Option<Status>,
    children: unix::Signal,
}

impl Group {
    /// Starts the command in a new process group.
    pub(crate) fn start(launch: &Launch<'_>, environment: &Environment) -> io::Result<Self> {
        // Orphans of the group become children of this process, which reaps them. An init process that reaps none, as in
        // some containers, would leave them in the group forever.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        // Before there is a child: afterwards, nothing may fail any more.
        let children = unix::signal(SignalKind::child())?;
        let mut command = launch.command()?;
        environment.apply(&mut command);
        let leader = command.process_group(0).spawn()?;
        Ok(Self {
            leader: Pid::from_child(&leader),
            status: None,
            children,
        })
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    /// Returns the exit status of the command, once it has ended.
    pub(crate) fn status(&self) -> Option<Status> {
        self.status
    }

    /// Sends a signal to all processes of the group. A group that has ended needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }

    /// Returns whether a process of the group is left.
    pub(crate) fn is_alive(&self) -> bool {
        // Processes that this one may not signal are there, too.
        test_kill_process_group(self.leader) != Err(Errno::SRCH)
    }

    /// Resolves when a child has stopped, continued or ended since the last call.
    pub(crate) async fn changed(&mut self) {
        self.children.recv().await;
    }

    /// Reaps all children that have ended. Returns the signal that stopped the command, if one did since the last call.
    pub(crate) fn reap(&mut self) -> Option<Signal> {
        let mut stopped = None;
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if child != self.leader {
                continue;
            }
            stopped = status.stopping_signal().and_then(Signal::from_named_raw);
            self.status = ended(status).or(self.status);
        }
        stopped
    }
}

fn ended(status: WaitStatus) -> Option<Status> {
    if let Some(signal) = status.terminating_signal() {
        return Some(Status::signalled(signal));
    }
    let code = status.exit_status()?;
    Some(Status::new(u8::try_from(code).unwrap_or(u8::MAX)))
}
