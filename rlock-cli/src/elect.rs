//! `rlock elect`: one of several hosts leads, and runs a command in each of its terms.

use std::{future::Future, pin::pin, slice, time::Duration};

use clap::Args;
use humantime::format_duration;
use rlock_core::LockClient;
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{Instant, sleep};

use crate::{
    connect::{StoreOptions, connect_within},
    duration::{self, LONGEST_WAIT},
    exit::{Failure, Status},
    manual,
    run::{self, OnLost, Task, Work, environment, signals::Signals},
};

/// The options of `rlock elect`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::ELECT))]
pub(crate) struct ElectOptions {
    /// The key of the election: that of the lock which the leader holds
    key: String,
    /// A value to announce while this process leads, such as its address: at most 1,024 bytes
    #[arg(long, value_name = "TEXT")]
    value: Option<String>,
    /// How long a leader that has died or is cut off blocks the next one
    #[arg(
        long,
        env = "RLOCK_LEASE",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::lease
    )]
    lease: Duration,
    #[command(flatten)]
    task: Task,
}

/// The longest value that the library announces, in bytes.
const LONGEST_VALUE: usize = 1024;

/// The pauses before the next campaign. Each is twice as long as the one before, unless the command has run for longer than
/// the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(crate) async fn elect(
    options: &ElectOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    if options.value.as_ref().map_or(0, String::len) > LONGEST_VALUE {
        let message =
            "a leader announces at most 1,024 bytes: announce an address, and serve the rest there";
        return Err(Failure::new(Status::USAGE, message));
    }
    let mut signals =
        Signals::listen().map_err(|error| Failure::own("listen to signals", &error))?;
    let connected = until_stopped(&mut signals, connect_within(store, LONGEST_WAIT));
    let client = match connected.await {
        Ok(client) => client?,
        Err(signal) => return Ok(signal.into()),
    };
    let ended = lead(options, &client, &mut signals, json).await;
    run::give_back(&client, &mut signals, store.response_timeout()).await;
    ended
}

/// Leads term after term, until a signal ends this process or the command cannot be executed.
async fn lead(
    options: &ElectOptions,
    client: &LockClient,
    signals: &mut Signals,
    json: bool,
) -> Result<Status, Failure> {
    run::refuse_own(client, slice::from_ref(&options.key)).await?;
    let election = client.election(&options.key).lease(options.lease);
    let work = Work {
        on_lost: OnLost::Term,
        on_request: Some(options.task.signal),
        task: options.task.clone(),
    };
    let mut pause = FIRST_PAUSE;
    loop {
        tracing::info!(election = options.key, "waiting to lead");
        let leadership = match until_stopped(signals, election.campaign()).await {
            Ok(leadership) => leadership?,
            Err(signal) => return Ok(signal.into()),
        };
        let began = Instant::now();
        let term = leadership.term();
        tracing::info!(
            election = options.key,
            term = term.token().as_u64(),
            owner = term.owner(),
            "leading"
        );
        if let Some(value) = &options.value {
            // This fails only if the leadership is lost already, and then the command is stopped at once.
            let _ = term.announce(value);
        }
        let environment = environment::of(term);
        let environment = environment.with(&[("RLOCK_TERM", term.token().to_string())]);
        // Ctrl-C has to end this process, and not only the command of one term.
        let ended = work.run(json, &environment, term, signals, false).await?;
        if let (Err(error), false) = (leadership.resign().await, ended.is_lost) {
            tracing::warn!(error = format!("{error:#}"), "could not resign");
        }
        // Another term would not help a command that is not there.
        let is_missing = [Status::CANNOT_EXECUTE, Status::NOT_FOUND].contains(&ended.status);
        if signals.is_stopping || is_missing {
            return Ok(ended.status);
        }
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        let (status, after) = (ended.status.code(), format_duration(pause).to_string());
        tracing::warn!(status, after, "the command has ended, campaigning again");
        if let Err(signal) = until_stopped(signals, sleep(pause)).await {
            return Ok(signal.into());
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the future's output, or the signal that ends this process, which has no command at present. USR1 and USR2 are for
/// the command alone.
async fn until_stopped<T>(
    signals: &mut Signals,
    future: impl Future<Output = T>,
) -> Result<T, Signal> {
    let mut future = pin!(future);
    loop {
        match signals.interrupt(&mut future).await {
            // After the first term, Ctrl-Z no longer stops this process by itself.
            Err(Signal::TSTP) => _ = kill_process(getpid(), Signal::STOP),
            Err(_) if !signals.is_stopping => {}
            ended => return ended,
        }
    }
}
