//! `rlock once`: of all hosts that call it for a tick, the first one runs the command.

mod tick;

use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};
use humantime::format_duration;
use rlock_core::{LockClient, LockGuard, once::Claim};

use self::tick::Tick;
use crate::{
    connect::StoreOptions,
    describe,
    duration::{self, Limit},
    exit::{Failure, Status},
    manual,
    run::{self, Job, Work},
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

/// A call for one tick.
struct Call<'a> {
    options: &'a OnceOptions,
    tick: Tick,
    window: Duration,
}

pub(crate) async fn once(
    options: &OnceOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let now = SystemTime::now();
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
    };
    call.check(now)?;
    let end = tick.time() + window;
    let wait = end.duration_since(now).unwrap_or_default();
    let job = Job {
        wait: Limit::For(if options.retry { wait } else { Duration::ZERO }),
        work: &options.work,
        variables: &[("RLOCK_TICK", tick.to_string())],
    };
    let acquire = async |client: &LockClient| call.acquire(client).await;
    let ended = job.run(store, json, acquire).await;
    ended.or_else(|failure| {
        failure.or_chosen(&[
            (Status::TAKEN, options.conflict_exit_code),
            (Status::MISSED, options.missed_exit_code),
        ])
    })
}

impl Call<'_> {
    /// Checks the tick before the client connects, because the client's error would name the options of the library.
    fn check(&self, now: SystemTime) -> Result<(), Failure> {
        let state = if now + self.window < self.tick.time() {
            "is too far ahead: pass a tick that is due, or check this host's clock"
        } else if !self.options.again && self.tick.is_ancient(now) {
            "is more than a year ago: pass the scheduled time, or `--again` to run it by hand"
        } else {
            return Ok(());
        };
        Err(self.failure(Status::USAGE, state))
    }

    async fn acquire(&self, client: &LockClient) -> Result<LockGuard, Failure> {
        let OnceOptions {
            ref name,
            retry,
            again,
            lease,
            ..
        } = *self.options;
        let mut job = client.once(name, self.tick.time()).window(self.window);
        job = job.lease(lease);
        let keys = [job.key().to_owned()];
        if again {
            job = job.again();
        }
        let claim = if retry {
            job = job.retry();
            run::refuse_own(client, &keys).await?;
            run::remarked(client, &keys, job.acquire()).await
        } else {
            job.acquire().await
        };
        match claim? {
            Claim::Granted(guard) => Ok(guard),
            Claim::Done => {
                let done = "is done; `--again` runs it anyway";
                Err(self.failure(Status::TAKEN, done).expected())
            }
            Claim::Taken(info) => {
                let holder = describe::taken(&info);
                let taken = format!("is taken: lock `{}` is {holder}", info.key);
                Err(self.failure(Status::TAKEN, &taken))
            }
            Claim::Missed => {
                let memory = format_duration(job.memory());
                let missed = format!(
                    "was missed: its window has ended, and the store, which keeps records for {memory}, has none of a run; \
                     `--again` runs it"
                );
                Err(self.failure(Status::MISSED, &missed))
            }
        }
    }

    fn failure(&self, status: Status, state: &str) -> Failure {
        let (name, tick) = (&self.options.name, self.tick);
        let window = format_duration(self.window);
        let message = format!("tick {tick} of `{name}`, with a window of {window}, {state}");
        Failure::new(status, message)
    }
}
