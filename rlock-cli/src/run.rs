//! `rlock run`: holds locks while a command runs.

mod environment;
mod group;
pub(crate) mod launcher;
pub(crate) mod signals;
mod supervise;
mod terminal;

use std::{io, time::Duration};

use rlock_core::{LockClient, LockError, MultiLockGuard};
use rustix::process::Signal;
use tokio::time::timeout;

use self::{
    group::Group,
    launcher::Launch,
    signals::Signals,
    supervise::{Ended, Policy, Supervisor},
    terminal::Terminal,
};
use crate::{
    cli::{OnLost, RunOptions},
    connect::connect,
    duration::Limit,
    exit::{Failure, Status},
};

/// How long the end of `rlock` may take to give back what it asked the store for. The lease ends it otherwise.
const GIVE_BACK: Duration = Duration::from_secs(2);

pub(crate) async fn run(options: &RunOptions, json: bool) -> Result<Status, Failure> {
    let mut signals =
        Signals::listen().map_err(|error| Failure::own("listen to signals", &error))?;
    let client = match signals.interrupt(connect(&options.store)).await {
        Ok(client) => client?,
        Err(signal) => return Ok(signal.into()),
    };
    let acquired = signals.interrupt(acquire(&client, options)).await;
    let guard = match acquired {
        Ok(Ok(guard)) => guard,
        Ok(Err(refused)) => {
            give_back(&client, &mut signals).await;
            return match refused.report() {
                Status::TAKEN => Ok(Status::new(options.conflict_exit_code)),
                status => Ok(status),
            };
        }
        Err(signal) => {
            tracing::info!(signal = signals::name(signal), "stopped waiting");
            give_back(&client, &mut signals).await;
            return Ok(signal.into());
        }
    };
    for held in guard.guards() {
        tracing::info!(key = held.key(), token = held.fencing_token(), owner = %held.owner(), "lock acquired");
    }
    let ended = match hold(options, json, &guard, &mut signals).await {
        Ok(ended) => ended,
        Err(failure) => {
            drop(guard);
            give_back(&client, &mut signals).await;
            return Err(failure);
        }
    };
    let is_lost = match guard.release().await {
        Ok(()) => {
            tracing::info!("locks released");
            false
        }
        Err(error @ LockError::Lost { .. }) => {
            if !ended.is_lost {
                tracing::warn!(%error, "a lock was lost before the command ended");
            }
            // The store may still have it, or others of the locks.
            give_back(&client, &mut signals).await;
            true
        }
        Err(error) => {
            tracing::warn!(%error, "could not release the locks, their leases end them");
            false
        }
    };
    if (is_lost || ended.is_lost) && options.on_lost == OnLost::Term {
        return Ok(Status::LOST);
    }
    Ok(ended.status)
}

/// Acquires the locks. A store that cannot grant them at first is reported at once; an outage while the locks are
/// waited for is part of the wait.
async fn acquire(client: &LockClient, options: &RunOptions) -> Result<MultiLockGuard, Failure> {
    let mut locks = client.lock_all(&options.keys).lease(options.lease);
    if let Some(max_hold) = options.max_hold {
        locks = locks.max_hold(max_hold);
    }
    if let Some(at_least) = options.at_least {
        locks = locks.at_least(at_least);
    }
    if let Some(guard) = locks.try_acquire().await? {
        return Ok(guard);
    }
    let locks = match options.wait {
        Limit::For(Duration::ZERO) => return Err(taken(&options.keys)),
        _ if options.no_wait => return Err(taken(&options.keys)),
        Limit::For(limit) => locks.wait(limit),
        Limit::Forever => locks.wait_forever(),
    };
    tracing::info!("waiting, because a lock is taken");
    Ok(locks.acquire().await?)
}

fn taken(keys: &[String]) -> Failure {
    let message = match keys {
        [key] => format!("lock `{key}` is taken"),
        keys => format!("one of the locks `{}` is taken", keys.join("`, `")),
    };
    Failure::new(Status::TAKEN, message)
}

/// Runs the command until all of its process group has ended.
async fn hold(
    options: &RunOptions,
    json: bool,
    guard: &MultiLockGuard,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let terminal = Terminal::of_stdin();
    let launch = Launch {
        on_death: options.signal,
        takes_terminal: terminal.is_some_and(Terminal::is_for_command),
        json,
        command: &options.command,
    };
    let environment = environment::of(&options.keys, guard);
    let failed = |error: io::Error| Failure::own("start the command", &error);
    if terminal.is_some_and(Terminal::has_job_control) {
        signals.add(Signal::TSTP).map_err(failed)?;
    }
    let group = Group::start(&launch, &environment).map_err(failed)?;
    tracing::info!(pid = group.id().as_raw_nonzero().get(), "command started");
    let policy = Policy {
        on_lost: options.on_lost,
        signal: options.signal,
        kill_after: options.kill_after,
    };
    let supervisor = Supervisor::new(group, terminal, policy);
    Ok(supervisor.until_ended(guard, signals).await)
}

/// Lets the client undo its requests: it leaves the wait queue, and releases what it was granted meanwhile.
async fn give_back(client: &LockClient, signals: &mut Signals) {
    let shutdown = timeout(GIVE_BACK, client.shutdown());
    if let Ok(Ok(Err(error))) = signals.interrupt(shutdown).await {
        tracing::debug!(%error, "could not give back everything");
    }
}
