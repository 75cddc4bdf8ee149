//! `rlock run`: holds locks while a command runs.

pub(crate) mod environment;
mod group;
pub(crate) mod launcher;
pub(crate) mod signals;
mod supervise;
mod terminal;

use std::{ffi::OsString, io, pin::pin, time::Duration};

use clap::{Args, ValueEnum, value_parser};
use humantime::format_duration;
use rlock_core::{Hold, LockClient, LockError, LockGuard, LostCause, Token, inspect::LockInfo};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use self::{
    environment::Environment,
    group::Group,
    launcher::Launch,
    signals::Signals,
    supervise::{Ended, Supervisor},
    terminal::Terminal,
};
use crate::{
    connect::{StoreOptions, connect_within},
    describe,
    duration::{self, LONGEST_WAIT, Limit, WaitOption},
    exit::{Failure, Status},
    manual,
};

/// The options of `rlock run`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = manual::help(manual::RUN))]
pub(crate) struct RunOptions {
    /// The key to lock; several keys are acquired together, all or none
    #[arg(short, long = "key", value_name = "KEY", required = true, num_args = 1..)]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) limit: WaitOption,
    /// Does not wait for a taken lock or an unreachable store; takes precedence over `--wait`
    #[arg(short, long)]
    pub(crate) no_wait: bool,
    /// Shares the locks with other shared holders, for commands that only read
    #[arg(short, long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Takes one of N permits: at most N commands with this option run at once
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) permits: Option<u32>,
    /// Takes K of the permits instead of one, all or none
    #[arg(long, value_name = "K", requires = "permits", value_parser = value_parser!(u32).range(1..))]
    pub(crate) take: Option<u32>,
    /// How long the store keeps a lock without a renewal, for example after a crash
    #[arg(
        long,
        env = "RLOCK_LEASE",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::lease
    )]
    pub(crate) lease: Duration,
    /// How long the locks may be held before they count as lost; not less than `--min-hold`
    #[arg(long, value_name = "DURATION", value_parser = duration::max_hold)]
    pub(crate) max_hold: Option<Duration>,
    /// Keeps the locks for at least this long if the command succeeds, even if it ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration::min_hold)]
    pub(crate) min_hold: Option<Duration>,
    /// The exit status when the locks are not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    #[command(flatten)]
    pub(crate) work: Work,
}

/// The command, and what happens to it when a lock is lost, or another client requests its release.
#[derive(Debug, Clone, Args)]
pub(crate) struct Work {
    /// What happens to the command when a lock is lost
    #[arg(long, value_enum, value_name = "ACTION", default_value = "term")]
    pub(crate) on_lost: OnLost,
    /// The signal that the command gets when another client requests the release of a lock; without this option it gets
    /// none, and runs on
    #[arg(long, value_name = "SIGNAL", value_parser = signals::parse)]
    pub(crate) on_request: Option<Signal>,
    #[command(flatten)]
    pub(crate) task: Task,
}

/// The command, and how it is stopped.
#[derive(Debug, Clone, Args)]
pub(crate) struct Task {
    /// The signal that stops the command when a lock is lost
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub(crate) signal: Signal,
    /// How long after that signal the command is killed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5s",
        value_parser = duration::kill_after
    )]
    pub(crate) kill_after: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// Checks options before the client connects. The client's error would name the options of the library.
    fn check(&self) -> Result<(), Failure> {
        let (Some(max_hold), Some(min_hold)) = (self.max_hold, self.min_hold) else {
            return Ok(());
        };
        if max_hold >= min_hold {
            return Ok(());
        }
        let (max_hold, min_hold) = (format_duration(max_hold), format_duration(min_hold));
        let message = format!(
            "`--max-hold {max_hold}` is shorter than `--min-hold {min_hold}`: raise `--max-hold` or lower `--min-hold`"
        );
        Err(Failure::new(Status::USAGE, message))
    }

    /// Returns how long to wait for taken locks, and for an unreachable store.
    fn waits(&self) -> Limit {
        if self.no_wait {
            Limit::For(Duration::ZERO)
        } else {
            self.limit.wait
        }
    }
}

/// What happens to the command when a lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// Stops it: `--signal`, and KILL after `--kill-after`
    Term,
    /// Lets it run on, and logs the loss
    Continue,
}

/// How long `rlock` tries to release its locks before it ends if the store has not replied before: for a whole lease, for
/// example. Otherwise it tries for the response time-out. Locks that are not released end with their leases.
const GIVE_BACK_TO_SILENT_STORE: Duration = Duration::from_millis(200);

/// How long to wait before a line names the reason.
const REMARK_WAIT: Duration = Duration::from_secs(3);

pub(crate) async fn run(
    options: &RunOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    options.check()?;
    let job = Job {
        wait: options.waits(),
        work: &options.work,
        variables: &[],
    };
    let started = Instant::now();
    let acquire = async |client: &LockClient| {
        let acquired = acquire(client, options, started).await?;
        match acquired {
            Some(guard) => Ok(guard),
            None => Err(taken(client, &options.keys).await),
        }
    };
    let ended = job.run(store, json, acquire).await;
    ended.or_else(|failure| failure.or_chosen(&[(Status::TAKEN, options.conflict_exit_code)]))
}

/// A command that runs while its locks are held.
pub(crate) struct Job<'a> {
    /// How long to wait for an unreachable store.
    pub(crate) wait: Limit,
    pub(crate) work: &'a Work,
    /// What the command gets in its environment in addition to its locks.
    pub(crate) variables: &'a [(&'static str, String)],
}

impl Job<'_> {
    /// Connects, acquires the locks by the given function, and runs the command.
    pub(crate) async fn run(
        &self,
        store: &StoreOptions,
        json: bool,
        acquire: impl AsyncFnOnce(&LockClient) -> Result<LockGuard, Failure>,
    ) -> Result<Status, Failure> {
        let mut signals =
            Signals::listen().map_err(|error| Failure::own("listen to signals", &error))?;
        let wait = self.wait.left(Instant::now());
        let connected = connect_within(store, wait.unwrap_or(LONGEST_WAIT));
        let client = match signals.interrupt(connected).await {
            Ok(client) => client?,
            Err(signal) => return Ok(signal.into()),
        };
        let acquired = signals.interrupt(acquire(&client));
        let mut guard = match acquired.await {
            Ok(Ok(guard)) => guard,
            Ok(Err(refused)) => {
                let limit = match refused.status {
                    Status::UNAVAILABLE => GIVE_BACK_TO_SILENT_STORE,
                    _ => store.response_timeout(),
                };
                give_back(&client, &mut signals, limit).await;
                return Err(refused);
            }
            Err(signal) => {
                tracing::info!(signal = signals::name(signal), "stopped waiting");
                give_back(&client, &mut signals, store.response_timeout()).await;
                return Ok(signal.into());
            }
        };
        for key in guard.keys() {
            let token = guard.token_of(key).map(Token::as_u64);
            tracing::info!(key, token, owner = guard.owner_of(key), "lock acquired");
        }
        let environment = environment::of(&guard).with(self.variables);
        let ended = (self.work).run(json, &environment, &guard, &mut signals, true);
        let ended = match ended.await {
            Ok(ended) => ended,
            Err(failure) => {
                guard.mark_failed();
                drop(guard);
                give_back(&client, &mut signals, store.response_timeout()).await;
                return Err(failure);
            }
        };
        if ended.status != Status::SUCCESS {
            guard.mark_failed();
        }
        let is_lost = match guard.release().await {
            Ok(()) => {
                tracing::info!("locks released");
                false
            }
            Err(ref error @ LockError::Lost { cause, .. }) => {
                if !ended.is_lost {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "a lock was lost before the command ended"
                    );
                }
                // The store may still have it, or others of the locks.
                let limit = match cause {
                    LostCause::Expired => GIVE_BACK_TO_SILENT_STORE,
                    _ => store.response_timeout(),
                };
                give_back(&client, &mut signals, limit).await;
                true
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "could not release the locks, their leases end them"
                );
                false
            }
        };
        if (is_lost || ended.is_lost) && self.work.on_lost == OnLost::Term {
            return Ok(Status::LOST);
        }
        Ok(ended.status)
    }
}

impl Work {
    /// Runs the command until all of its process group has ended. `may_take`: whether it may have the terminal at once.
    pub(crate) async fn run(
        &self,
        json: bool,
        environment: &Environment,
        hold: &Hold,
        signals: &mut Signals,
        may_take: bool,
    ) -> Result<Ended, Failure> {
        let terminal = Terminal::of_process();
        let free = terminal.as_ref().filter(|_| may_take);
        let launch = Launch {
            on_death: self.task.signal,
            takes_terminal: free.is_some_and(Terminal::is_for_command),
            json,
            command: &self.task.command,
        };
        let failed = |error: io::Error| Failure::own("start the command", &error);
        if terminal.as_ref().is_some_and(Terminal::has_job_control) {
            signals.add(Signal::TSTP).map_err(failed)?;
        }
        let group = Group::start(&launch, environment).map_err(failed)?;
        tracing::info!(pid = group.id().as_raw_nonzero().get(), "command started");
        let supervisor = Supervisor::new(group, terminal, self.clone());
        Ok(supervisor.until_ended(hold, signals).await)
    }
}

/// Acquires the locks. An outage is part of the wait. Returns `None` if one is taken, and the options allow no wait.
async fn acquire(
    client: &LockClient,
    options: &RunOptions,
    started: Instant,
) -> Result<Option<LockGuard>, Failure> {
    let wait = options.waits();
    let mut locks = client.lock_all(&options.keys).lease(options.lease);
    if options.shared {
        locks = locks.shared();
    }
    if let Some(permits) = options.permits {
        locks = locks.permits(permits);
    }
    if let Some(take) = options.take {
        locks = locks.take(take);
    }
    if let Some(max_hold) = options.max_hold {
        locks = locks.max_hold(max_hold);
    }
    if let Some(min_hold) = options.min_hold {
        locks = locks.min_hold(min_hold);
    }
    let waits = wait != Limit::For(Duration::ZERO);
    match locks.try_acquire().await {
        Ok(Some(guard)) => return Ok(Some(guard)),
        Ok(None) if waits => tracing::info!("waiting, because a lock is taken"),
        Ok(None) => return Ok(None),
        Err(error) if waits && error.is_outage() => {
            tracing::warn!(error = format!("{error:#}"), "waiting for the store");
        }
        Err(error) => return Err(error.into()),
    }
    refuse_own(client, &options.keys).await?;
    let locks = match wait.left(started) {
        Some(left) => locks.wait(left),
        None => locks.wait_forever(),
    };
    Ok(Some(
        remarked(client, &options.keys, locks.acquire()).await?,
    ))
}

/// Awaits the locks, and logs the reason of a long wait.
pub(crate) async fn remarked<F: Future>(
    client: &LockClient,
    keys: &[String],
    acquired: F,
) -> F::Output {
    let mut acquired = pin!(acquired);
    let remark = async {
        sleep(REMARK_WAIT).await;
        remark_wait(client, keys).await;
    };
    tokio::select! {
        biased;
        acquired = &mut acquired => return acquired,
        () = remark => {}
    }
    acquired.await
}

/// Returns an error if an outer `rlock run` has one of the locks: that one waits for the end of this process.
pub(crate) async fn refuse_own(client: &LockClient, keys: &[String]) -> Result<(), Failure> {
    let around = environment::owners_around();
    if around.is_empty() {
        return Ok(());
    }
    for key in keys {
        // Without a reply, this process waits for the lock like for any other.
        if let Ok(Some(info)) = client.inspect(key).await
            && around.contains(&info.owner)
        {
            let message = format!(
                "lock `{key}` is held by an outer `rlock`, which would deadlock with itself: leave out the inner `rlock`, or give it \
                 another key"
            );
            return Err(Failure::new(Status::USAGE, message));
        }
    }
    Ok(())
}

/// Returns the first of the locks that is taken.
async fn first_taken(client: &LockClient, keys: &[String]) -> Result<Option<LockInfo>, LockError> {
    for key in keys {
        if let Some(info) = client.inspect(key).await? {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Logs the reason of the wait.
async fn remark_wait(client: &LockClient, keys: &[String]) {
    match first_taken(client, keys).await {
        Ok(Some(info)) => tracing::warn!(
            "waiting for lock `{}`; it is {}",
            info.key,
            describe::taken(&info)
        ),
        Ok(None) => {}
        Err(error) => tracing::warn!(error = format!("{error:#}"), "waiting for the store"),
    }
}

/// Returns the first of the locks that is taken, to log it.
pub(crate) async fn taken_to_log(client: &LockClient, keys: &[String]) -> Option<LockInfo> {
    // The question to the holder takes time, for a message that `--quiet` hides.
    if !tracing::event_enabled!(tracing::Level::WARN) {
        return None;
    }
    first_taken(client, keys).await.ok().flatten()
}

/// Returns the failure for locks of which one is taken.
async fn taken(client: &LockClient, keys: &[String]) -> Failure {
    let message = match (taken_to_log(client, keys).await, keys) {
        (Some(info), _) => {
            format!(
                "lock `{}` is taken; it is {}",
                info.key,
                describe::taken(&info)
            )
        }
        (None, [key]) => format!("lock `{key}` is taken"),
        (None, keys) => format!("one of the locks `{}` is taken", keys.join("`, `")),
    };
    Failure::new(Status::TAKEN, message)
}

/// Lets the client undo its requests: it leaves the wait queue, and releases the locks that it was granted before that.
pub(crate) async fn give_back(client: &LockClient, signals: &mut Signals, limit: Duration) {
    let shutdown = timeout(limit, client.shutdown());
    if let Ok(Ok(Err(error))) = signals.interrupt(shutdown).await {
        tracing::debug!(error = format!("{error:#}"), "could not release everything");
    }
}
