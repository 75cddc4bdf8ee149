//! Watches the command while it runs: passes signals on, stops it after a loss, and waits for its process group.

use std::{future::pending, time::Duration};

use rlock_core::{Hold, LostCause};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    OnLost, Work,
    group::Group,
    signals::{self, Signals},
    terminal::Terminal,
};
use crate::exit::Status;

/// How often to look for processes that outlive the command. Not all of them are reported when they end.
const LOOK: Duration = Duration::from_millis(100);

/// How long processes may outlive the command before that is logged.
const UNREMARKED: Duration = Duration::from_secs(1);

/// The pause before a command that reads the terminal in the background may try again.
const BACKGROUND: Duration = Duration::from_secs(1);

/// The end of the command.
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// Whether a lock was lost before all of the group had ended.
    pub(crate) is_lost: bool,
}

/// Runs while the command does.
pub(crate) struct Supervisor {
    group: Group,
    terminal: Option<Terminal>,
    work: Work,
    is_lost: bool,
    is_requested: bool,
    kill_at: Option<Instant>,
    /// When the command had ended, and some of its group had not.
    outlived_at: Option<Instant>,
    is_remarked: bool,
}

impl Supervisor {
    pub(crate) fn new(group: Group, terminal: Option<Terminal>, work: Work) -> Self {
        Self {
            group,
            terminal,
            work,
            is_lost: false,
            is_requested: false,
            kill_at: None,
            outlived_at: None,
            is_remarked: false,
        }
    }

    /// Returns when all processes of the group have ended.
    pub(crate) async fn until_ended(mut self, hold: &Hold, signals: &mut Signals) -> Ended {
        loop {
            if let Some(stopped_by) = self.group.reap() {
                self.stopped(stopped_by, hold, signals).await;
            }
            if let Some(status) = self.group.status() {
                if !self.group.is_alive() {
                    return self.ended(status);
                }
                self.remark();
            }
            tokio::select! {
                biased;
                signal = signals.next() => self.group.signal(signal),
                (key, cause) = hold.lost_key(), if !self.is_lost => self.lost(key, cause),
                () = hold.release_requested(), if !self.is_requested => self.requested(),
                () = until(self.kill_at) => self.kill(),
                () = self.group.changed() => {}
                () = sleep(LOOK), if self.group.status().is_some() => {}
            }
        }
    }

    fn ended(self, status: Status) -> Ended {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group.id());
        }
        tracing::info!(status = status.code(), "command ended");
        Ended {
            status,
            is_lost: self.is_lost,
        }
    }

    /// Stops the command, unless it may run on without its lock.
    fn lost(&mut self, key: &str, cause: LostCause) {
        self.is_lost = true;
        if self.work.on_lost == OnLost::Continue {
            tracing::warn!(key, %cause, "a lock was lost, the command runs on");
            return;
        }
        let task = &self.work.task;
        let signal = signals::name(task.signal);
        tracing::error!(key, %cause, signal, "a lock was lost, stopping the command");
        self.group.signal(task.signal);
        // A stopped process takes no signal before it continues.
        self.group.signal(Signal::CONT);
        self.kill_at = Some(Instant::now() + task.kill_after);
    }

    /// Passes the request to release a lock on to the command, but never kills it, because no lock is lost.
    fn requested(&mut self) {
        self.is_requested = true;
        let Some(signal) = self.work.on_request else {
            tracing::info!("another client requests the release of the lock, the command runs on");
            return;
        };
        let name = signals::name(signal);
        tracing::warn!(
            signal = name,
            "another client requests the release of the lock, signalling the command"
        );
        self.group.signal(signal);
        self.group.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        self.kill_at = None;
        tracing::error!("the command did not stop, killing it");
        self.group.signal(Signal::KILL);
    }

    /// Logs once that processes of the group outlive the command.
    fn remark(&mut self) {
        let since = *self.outlived_at.get_or_insert_with(Instant::now);
        if since.elapsed() >= UNREMARKED && !self.is_remarked {
            self.is_remarked = true;
            tracing::warn!("the command has ended, waiting for the processes that it left behind");
        }
    }

    /// Stops the whole job if its terminal's user stopped the command, and lets both continue together.
    async fn stopped(&mut self, by: Signal, hold: &Hold, signals: &mut Signals) {
        let group = self.group.id();
        // Without a terminal, or by `SIGSTOP` without job control, the command was stopped on purpose from outside. It
        // stays stopped and keeps its locks.
        let is_job = |terminal: &Terminal| by != Signal::STOP || terminal.has_job_control();
        let Some(terminal) = self.terminal.clone().filter(is_job) else {
            return;
        };
        let asks = by == Signal::TTIN || by == Signal::TTOU;
        let needs_terminal = asks || terminal.is_of(group);
        if !(asks && terminal.is_ours()) {
            terminal.stop_job(group);
            // The job has continued. A `SIGTSTP` that arrived before, also from another process of the job, is void.
            signals.forget(Signal::TSTP).await;
            // Nothing was renewed in the meantime.
            if !hold.is_valid() && !self.is_lost {
                let (key, cause) = hold.lost_key().await;
                self.lost(key, cause);
            }
            if asks && !terminal.is_ours() {
                sleep(BACKGROUND).await;
            }
        }
        if needs_terminal {
            terminal.give_to(group);
        }
        self.group.signal(Signal::CONT);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
