//! `rlock once`: of all hosts that call it for a tick, the first one runs the command.
//!
//! The lock of a tick is also its record. While a host runs the tick, the lock has a holder. Then `min_hold` keeps it without a
//! holder, which means that the tick is done. A lock that is free after the window means that no host has run the tick.

mod tick;

use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};
use humantime::format_duration;
use rlock_core::{LockClient, LockGuard, escape, inspect::LockInfo};
use tokio::time::{Instant, sleep};

use self::tick::{Schedule, Tick};
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
    /// The other hosts then wait until the tick is done or its window ends. If the host that runs it does not reply then, they
    /// wait for the end of its lease.
    #[arg(long)]
    retry: bool,
    /// Runs the command by hand even if the tick is done or its window has ended, but not while another host runs it
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
    /// The exit status on hosts that do not run the command because another host runs the tick or has run it
    #[arg(short = 'E', long, value_name = "N", default_value_t = 0)]
    conflict_exit_code: u8,
    /// The exit status if the window of the tick has ended, and the store has no record of a run
    #[arg(long, value_name = "N", default_value_t = Status::MISSED.code())]
    missed_exit_code: u8,
    #[command(flatten)]
    work: Work,
}

/// The window of a call that names its tick: clocks, timers and slow starts rarely differ by more.
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// The pause between two looks at a tick that another host has.
const LOOK: Duration = Duration::from_secs(1);

/// A call for one tick.
struct Call<'a> {
    options: &'a OnceOptions,
    schedule: Schedule,
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
        schedule: Schedule { tick, window },
        key: format!("{}:{tick}", escape(&options.name)),
        started,
    };
    if call.schedule.is_early(now) {
        let state = "is too far ahead: pass a tick that is due, or check this host's clock";
        return Err(call.failure(Status::USAGE, state));
    }
    if !options.again && tick.is_ancient(now) {
        let state =
            "is more than a year ago: pass the scheduled time, or `--again` to run it by hand";
        return Err(call.failure(Status::USAGE, state));
    }
    let run = call.run_options(now);
    let job = Job {
        options: &run,
        variables: &[("RLOCK_TICK", tick.to_string())],
        keeps_failed: !options.retry,
    };
    let acquire = async |client: &LockClient| call.acquire(client, &run).await;
    let ended = job.run(store, json, acquire).await;
    ended.or_else(|failure| {
        failure.or_chosen(&[
            (Status::TAKEN, options.conflict_exit_code),
            (Status::MISSED, options.missed_exit_code),
        ])
    })
}

impl Call<'_> {
    fn run_options(&self, now: SystemTime) -> RunOptions {
        let OnceOptions { retry, lease, .. } = *self.options;
        RunOptions {
            keys: vec![self.key.clone()],
            limit: WaitOption {
                wait: Limit::For(self.schedule.left(now, 1)),
            },
            no_wait: !retry,
            shared: false,
            permits: None,
            // Without `--retry`, the tick also counts as done if this host dies.
            lease: if retry {
                lease
            } else {
                lease.max(self.schedule.left(now, 2))
            },
            max_hold: None,
            min_hold: Some(self.schedule.record(now)),
            conflict_exit_code: self.options.conflict_exit_code,
            work: self.options.work.clone(),
        }
    }

    async fn acquire(&self, client: &LockClient, run: &RunOptions) -> Result<LockGuard, Failure> {
        if self.options.again {
            return self.acquire_again(client, run).await;
        }
        while !self.is_over() {
            let acquired = tokio::select! {
                biased;
                acquired = run::acquire(client, run, self.started) => acquired,
                () = self.done(client), if self.options.retry => Ok(None),
            };
            if let Some(mut guard) = granted(acquired)? {
                if self.is_over() {
                    guard.mark_failed();
                    return Err(self.missed());
                }
                return Ok(guard);
            }
            if let Some(refused) = self.refused(client, &self.key).await? {
                return Err(refused);
            }
            // The lock is free again, so the host that had it has not run the tick.
            sleep(LOOK).await;
        }
        let taken = self.refused(client, &self.key).await?;
        Err(taken.unwrap_or_else(|| self.missed()))
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
        let guard = self.acquire_by_hand(client, &again).await?;
        if self.is_done(client).await? {
            return Ok(guard);
        }
        self.acquire_by_hand(client, run).await
    }

    async fn acquire_by_hand(
        &self,
        client: &LockClient,
        run: &RunOptions,
    ) -> Result<LockGuard, Failure> {
        loop {
            if let Some(guard) = granted(run::acquire(client, run, self.started).await)? {
                return Ok(guard);
            }
            if let Some(refused) = self.refused(client, &run.keys[0]).await? {
                return Err(refused);
            }
            sleep(LOOK).await;
        }
    }

    /// Returns the reason why the lock is refused, or `None` if it is free.
    async fn refused(&self, client: &LockClient, key: &str) -> Result<Option<Failure>, Failure> {
        let info = self.settled(client, key).await?;
        Ok(info.map(|info| self.taken(&info)))
    }

    /// Inspects the lock until it is clear whether a host has the tick.
    ///
    /// A host that acquires the lock too late releases it at once and runs nothing, so a holder counts only if it still has the
    /// lock after a pause. With `--retry`, a holder that does not reply has to renew its lease: a host that died has not done
    /// the tick. Each host acquires the lock only once, so this loop ends.
    async fn settled(&self, client: &LockClient, key: &str) -> Result<Option<LockInfo>, Failure> {
        let mut first: Option<(String, Instant)> = None;
        loop {
            let asked = Instant::now();
            let info = client.inspect(key).await?;
            let Some(held) = info.as_ref().filter(|info| !describe::is_kept(info)) else {
                return Ok(info);
            };
            let may_be_dead = self.options.retry && held.holder.is_none();
            match &first {
                Some((owner, lease_end)) if *owner == held.owner => {
                    if !may_be_dead || asked > *lease_end {
                        return Ok(info);
                    }
                }
                _ => {
                    tracing::info!(
                        "looking again, because lock `{key}` is {}",
                        describe::taken(held)
                    );
                    let lease_end = Instant::now() + held.ttl.unwrap_or_default();
                    first = Some((held.owner.clone(), lease_end));
                }
            }
            sleep(LOOK).await;
        }
    }

    fn taken(&self, info: &LockInfo) -> Failure {
        if describe::is_kept(info) {
            let owner = info.owner.trim_start_matches("kept:");
            let state = format!("is done, by owner {owner}; `--again` runs it anyway");
            return self.failure(Status::TAKEN, &state).expected();
        }
        let holder = describe::taken(info);
        let state = format!("is taken: lock `{}` is {holder}", info.key);
        self.failure(Status::TAKEN, &state)
    }

    fn missed(&self) -> Failure {
        let memory = format_duration(self.schedule.memory());
        let state = format!(
            "was missed: its window has ended, and the store, which keeps records for {memory}, has none of a run; \
             `--again` runs it"
        );
        self.failure(Status::MISSED, &state)
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

    fn is_over(&self) -> bool {
        self.schedule.is_over(SystemTime::now())
    }

    fn failure(&self, status: Status, state: &str) -> Failure {
        let Schedule { tick, window } = self.schedule;
        let (name, window) = (&self.options.name, format_duration(window));
        let message = format!("tick {tick} of `{name}`, with a window of {window}, {state}");
        Failure::new(status, message)
    }
}

/// Returns the guard, `None` for a lock that another host has, or the failure.
fn granted(acquired: Result<Option<LockGuard>, Failure>) -> Result<Option<LockGuard>, Failure> {
    match acquired {
        Err(failure) if failure.status == Status::TAKEN => Ok(None),
        acquired => acquired,
    }
}
