//! The terminal: the command's process group has it while the command runs.

use std::io::{self, IsTerminal as _};

use nix::sys::signal::{self, SigSet};
use rustix::{
    process::{Pid, Signal, getpgrp, kill_current_process_group},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal that is the standard input, and controls this process.
#[derive(Clone, Copy)]
pub(crate) struct Terminal {
    own: Pid,
}

impl Terminal {
    pub(crate) fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        (stdin.is_terminal() && tcgetpgrp(&stdin).is_ok()).then(|| Self { own: getpgrp() })
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

    /// Stops this process and the rest of its job, so that the shell goes on. Returns when the job continues.
    pub(crate) fn stop_job(self, group: Pid) {
        self.take_back(group);
        // This process stops here, unless no shell could continue it: the system ignores the signal then.
        let _ = kill_current_process_group(Signal::TSTP);
    }
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
