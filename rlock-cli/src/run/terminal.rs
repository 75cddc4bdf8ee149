//! Gives the terminal to the command's process group while it runs.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileTypeExt as _},
    rc::Rc,
};

use nix::sys::signal::{self, SigSet};
use rustix::{
    process::{
        Pid, Signal, getpgid, getpgrp, getpid, getsid, kill_current_process_group, kill_process,
    },
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal that controls this process. A program, such as a pager, may use it even if the program's standard
/// streams are redirected.
#[derive(Clone)]
pub(crate) struct Terminal {
    device: Rc<File>,
    own: Pid,
}

impl Terminal {
    pub(crate) fn of_process() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty");
        Some(Self {
            device: device.ok()?.into(),
            own: getpgrp(),
        })
    }

    /// Returns whether a shell can continue this job after it has stopped: the leader of the session is in another job.
    pub(crate) fn has_job_control(&self) -> bool {
        let leader = getsid(None).and_then(|leader| getpgid(Some(leader)));
        leader.is_ok_and(|leader| leader != self.own)
    }

    /// Returns whether the command gets the terminal when it starts: its input is the terminal, and its output is no
    /// pipe. Otherwise another program of the pipeline, such as a pager, may need the terminal. The command then gets
    /// the terminal on its first access.
    pub(crate) fn is_for_command(&self) -> bool {
        self.is_ours() && tcgetpgrp(io::stdin()).is_ok() && !writes_to_pipe()
    }

    /// Returns whether the terminal's foreground group is that of this process.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(self.own)
    }

    /// Returns whether the terminal's foreground group is this one.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&*self.device) == Ok(group)
    }

    /// Gives the terminal to this group, if this process has it.
    pub(crate) fn give_to(&self, group: Pid) {
        if self.is_ours() {
            set_foreground(&*self.device, group);
        }
    }

    /// Takes the terminal back from this group, if the group has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.is_of(group) {
            set_foreground(&*self.device, self.own);
        }
    }

    /// Stops this process and the rest of its job, so that the shell goes on. Returns when the shell continues the job, or
    /// at once if there is no such shell.
    pub(crate) fn stop_job(&self, group: Pid) {
        if self.has_job_control() {
            self.take_back(group);
            // Another `rlock` of the job catches this signal, and stops its own command before itself.
            let _ = kill_current_process_group(Signal::TSTP);
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }
}

fn writes_to_pipe() -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let file = stdout.and_then(|stdout| File::from(stdout).metadata());
    file.is_ok_and(|file| file.file_type().is_fifo())
}

/// Gives the terminal to a process group. Without the terminal that is a write in the background, which would stop this
/// process: hence the signal for that is blocked. A terminal that is gone needs no owner.
pub(crate) fn set_foreground(terminal: impl AsFd, group: Pid) {
    let mut stops = SigSet::empty();
    stops.add(signal::SIGTTOU);
    let blocked = stops.thread_swap_mask(signal::SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(terminal, group);
    if let Ok(before) = blocked {
        let _ = before.thread_set_mask();
    }
}
