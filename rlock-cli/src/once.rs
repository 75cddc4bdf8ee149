//! `rlock once`: of all hosts that call it for a tick, the first one runs the command.
//!
//! A host runs a tick only if its own clock shows at most tick + window after the store has granted the lock, and then the
//! lock stays taken until that clock shows tick + 2 windows. When the lock is free again, every clock that differs from it by
//! less than a window shows more than tick + window. So the lock refuses a second host, or its own clock does.

mod tick;

use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};
use humantime::format_duration;
use rlock_core::{LockClient, LockGuard, escape};
use tokio::time::{Instant, sleep};

use self::tick::Tick;
use crate::{
    connect::StoreOptions,
    describe,
    duration::{self, Limit, WaitOption},
    exit::{Failure, Status},
    manual,
    run::{self, Job, RunOptions, Work},
};

/// The options of `rlock once`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::ONCE))]
#[command(group = ArgGroup::new("schedule").args(["tick", "window"]).required(true).multiple(true))]
pub(crate) struct OnceOptions {
    /// The name of the job
    name: String,
    /// The scheduled time, or tick, to run for, the same on all hosts: `2026-11-27T02:00Z` or `@1795744800`
    ///
    /// Without it, the tick is the multiple of the window since 1970 that is nearest to this host's clock, and `rlock` logs a
    /// warning.
    #[arg(long, env = "RLOCK_TICK", value_name = "TIME", value_parser = tick::parse)]
    tick: Option<Tick>,
    /// How long after the tick a host may still run it. 1s to 8h, 10m by default
    ///
    /// Must be longer than the clocks of two hosts differ, and the same on all hosts. Required without `--tick`, in which
    /// case all scheduled times have to be multiples of it.
    #[arg(long, value_name = "DURATION", value_parser = duration::window)]
    window: Option<Duration>,
    /// Lets another host with `--retry` run the command if it fails or its host dies
    ///
    /// The other hosts then wait until the tick is done, but no longer than its window.
    #[arg(long)]
    retry: bool,
    /// Runs the command by hand even if the tick is done or over, but not while another host runs it
    #[arg(long, conflicts_with = "retry")]
    again: bool,
    /// How long the store keeps the lock without a renewal: with `--retry`, the time until another host replaces a dead one
    ///
    /// Without `--retry`, the store keeps it at least until two windows after the tick.
    #[arg(
        long,
        env = "RLOCK_LEASE",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::lease
    )]
    lease: Duration,
    /// The exit status on hosts that do not run the command
    #[arg(short = 'E', long, value_name = "N", default_value_t = 0)]
    conflict_exit_code: u8,
    #[command(flatten)]
    work: Work,
}

/// The window of a call that names its tick: clocks, timers and slow starts rarely differ by more.
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// The pause between two looks at a tick that another host runs.
const LOOK: Duration = Duration::from_secs(1);

/// A call for one tick.
struct Call<'a> {
    options: &'a OnceOptions,
    tick: Tick,
    window: Duration,
    key: String,
    started: Instant,
}

pub(crate) async fn once(
    options: &OnceOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let (started, now) = (Instant::now(), SystemTime::now());
    let window = options.window.unwrap_or(WINDOW);
    let tick = options.tick.unwrap_or_else(|| {
        let tick = Tick::nearest(now, window);
        tracing::warn!(
            "no tick is given, so it is {tick}, the multiple of the window that is nearest to this host's clock: hosts whose \
             clocks differ by more than half of the window may both run the command, and the schedule has to be aligned with \
             the window; pass `--tick` or set RLOCK_TICK"
        );
        tick
    });
    let call = Call {
        options,
        tick,
        window,
        key: format!("{}:{tick}", escape(&options.name)),
        started,
    };
    if tick.is_early(now, window) {
        let state = "is too far ahead: pass a tick that is due, or check this host's clock";
        return Err(call.failure(Status::USAGE, state));
    }
    if !options.again && tick.is_over(now, window) {
        call.over().report();
        return Ok(Status::new(options.conflict_exit_code));
    }
    let run = call.run_options(now);
    let job = Job {
        options: &run,
        variables: &[("RLOCK_TICK", tick.to_string())],
        keeps_failed: !options.retry,
    };
    let acquire = async |client: &LockClient| call.acquire(client, &run).await;
    job.run(store, json, acquire).await
}

impl Call<'_> {
    fn run_options(&self, now: SystemTime) -> RunOptions {
        let OnceOptions { retry, lease, .. } = *self.options;
        let min_hold = self.tick.left(now, self.window, 2);
        RunOptions {
            keys: vec![self.key.clone()],
            limit: WaitOption {
                wait: Limit::For(self.tick.left(now, self.window, 1)),
            },
            no_wait: !retry,
            shared: false,
            permits: None,
            // Without `--retry`, the tick also counts as done if this host dies.
            lease: if retry { lease } else { lease.max(min_hold) },
            max_hold: None,
            min_hold: Some(min_hold),
            conflict_exit_code: self.options.conflict_exit_code,
            work: self.options.work.clone(),
        }
    }

    async fn acquire(&self, client: &LockClient, run: &RunOptions) -> Result<LockGuard, Failure> {
        if self.options.again {
            return self.acquire_again(client, run).await;
        }
        let acquired = tokio::select! {
            biased;
            acquired = run::acquire(client, run, self.started) => acquired,
            () = self.done(client), if self.options.retry => Ok(None),
        };
        let mut guard = self.granted(client, run, acquired).await?;
        if self.tick.is_over(SystemTime::now(), self.window) {
            guard.mark_failed();
            return Err(self.over());
        }
        Ok(guard)
    }

    /// Acquires the lock of a tick that may be done.
    ///
    /// A second key excludes other calls with `--again`. The lock of a done tick stays taken, so that no host without `--again`
    /// runs the tick at the same time. Ending its `min_hold` by force could take it from a host that has just begun.
    async fn acquire_again(
        &self,
        client: &LockClient,
        run: &RunOptions,
    ) -> Result<LockGuard, Failure> {
        let again = RunOptions {
            keys: vec![format!("{}:again", self.key)],
            lease: self.options.lease,
            min_hold: None,
            ..run.clone()
        };
        let acquired = run::acquire(client, &again, self.started).await;
        let guard = self.granted(client, &again, acquired).await?;
        if self.is_done(client).await? {
            return Ok(guard);
        }
        let acquired = run::acquire(client, run, self.started).await;
        self.granted(client, run, acquired).await
    }

    /// Returns the guard, or the failure for a lock that another host has.
    async fn granted(
        &self,
        client: &LockClient,
        run: &RunOptions,
        acquired: Result<Option<LockGuard>, Failure>,
    ) -> Result<LockGuard, Failure> {
        match acquired {
            Ok(Some(guard)) => return Ok(guard),
            Err(failure) if failure.status != Status::TAKEN => return Err(failure),
            Ok(None) | Err(_) => {}
        }
        let state = match run::taken_to_log(client, &run.keys).await {
            Some(info) if describe::is_kept(&info) => {
                "is done; `--again` runs it anyway".to_owned()
            }
            Some(info) => {
                let holder = describe::taken(&info);
                format!("is taken: lock `{}` is {holder}", info.key)
            }
            None => "is taken by another host".to_owned(),
        };
        Err(self.failure(Status::TAKEN, &state))
    }

    /// Resolves when another host has done the tick. An outage is part of the wait.
    async fn done(&self, client: &LockClient) {
        while !matches!(self.is_done(client).await, Ok(true)) {
            sleep(LOOK).await;
        }
    }

    async fn is_done(&self, client: &LockClient) -> Result<bool, Failure> {
        let info = client.inspect(&self.key).await?;
        Ok(info.is_some_and(|info| describe::is_kept(&info)))
    }

    fn over(&self) -> Failure {
        self.failure(Status::TAKEN, "is over; `--again` runs it anyway")
    }

    fn failure(&self, status: Status, state: &str) -> Failure {
        let (tick, name) = (self.tick, &self.options.name);
        let window = format_duration(self.window);
        let message = format!("tick {tick} of `{name}`, with a window of {window}, {state}");
        Failure::new(status, message)
    }
}
