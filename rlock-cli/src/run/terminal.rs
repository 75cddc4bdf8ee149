//! The terminal: the command's process group has it while the command runs.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
    os::{fd::AsFd as _, unix::fs::FileTypeExt as _},
};

use nix::sys::signal::{self, SigSet};
use rustix::{
    process::{Pid, Signal, getpgid, getpgrp, getsid, kill_current_process_group},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal that is the standard input, and controls this process.
#[derive(Clone, Copy)]
pub(crate) struct Terminal {
    own: Pid,
    has_job_control: bool,
}

impl Terminal {
    pub(crate) fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        let own = getpgrp();
        (stdin.is_terminal() && tcgetpgrp(&stdin).is_ok()).then(|| Self {
            own,
            has_job_control: has_job_control(own),
        })
    }

    /// Returns whether a shell can continue this job after it has stopped.
    pub(crate) fn has_job_control(self) -> bool {
        self.has_job_control
    }

    /// Returns whether the command gets the terminal when it starts. The reader of a pipe may be a pager, which needs the
    /// terminal: the command then gets it when it reads from it.
    pub(crate) fn is_for_command(self) -> bool {
        self.is_ours() && !writes_to_pipe()
    }

    /// Returns whether the terminal's foreground group is that of this process.
    pub(crate) fn is_ours(self) -> bool {
        foreground() == Some(self.own)
    }

    /// Gives the terminal to this group, if this process has it.
    pub(crate) fn give_to(self, group: Pid) {
        if self.is_ours() {
            set_foreground(group);
        }
    }

    /// Takes the terminal back from this group, if the group has it.
    pub(crate) fn take_back(self, group: Pid) {
        if foreground() == Some(group) {
            set_foreground(self.own);
        }
    }

    /// Stops this process and the rest of its job, so that the shell goes on. Returns when the shell continues the job, or
    /// at once if there is no such shell.
    pub(crate) fn stop_job(self, group: Pid) {
        if self.has_job_control {
            self.take_back(group);
            let _ = kill_current_process_group(Signal::STOP);
        }
    }
}

/// Returns whether the session's leader, if there is one, is of another job: a shell that started this one.
fn has_job_control(own: Pid) -> bool {
    let leader = getsid(None).and_then(|leader| getpgid(Some(leader)));
    leader.is_ok_and(|leader| leader != own)
}

fn writes_to_pipe() -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let file = stdout.and_then(|stdout| File::from(stdout).metadata());
    file.is_ok_and(|file| file.file_type().is_fifo())
}

fn foreground() -> Option<Pid> {
    tcgetpgrp(io::stdin()).ok()
}

/// Gives the terminal to a process group. Without the terminal that is a write in the background, which would stop this
/// process: hence the signal for that is blocked. A terminal that is gone needs no owner.
pub(crate) fn set_foreground(group: Pid) {
    let mut stops = SigSet::empty();
    stops.add(signal::SIGTTOU);
    let blocked = stops.thread_swap_mask(signal::SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(io::stdin(), group);
    if let Ok(before) = blocked {
        let _ = before.thread_set_mask();
    }
}
