//! Several processes that contend for one lock.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::{RedisServer, Worker};

use super::{Executed, KEY, Plan, STAY};
use crate::{
    contention::soon,
    contestant::Kind,
    metric::Metric,
    pace::Pace,
    results::Results,
    runtime,
    worker::{self, Role},
};

pub(super) const PROCESSES: u32 = 4;
/// The number of tasks of each process.
pub(super) const TASKS: u32 = 4;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let mut kinds = vec![Kind::Blpop, Kind::Ours, Kind::OursStrict];
    kinds.extend(Kind::PEERS);
    runtime::current_thread()?.block_on(measure(plan, &kinds))
}

async fn measure(plan: &Plan, kinds: &[Kind]) -> Result<Results> {
    let pace = &plan.pace;
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(kinds[0]);
    let mut teams = Vec::new();
    for &kind in kinds {
        kind.prepare(&server, KEY).await;
        teams.push((kind, start(kind, &route.url(), TASKS).await?));
    }
    for _ in 0..pace.rounds {
        for (kind, workers) in &mut teams {
            round(&mut results, pace, *kind, workers, Some(&server)).await?;
        }
    }
    for (kind, workers) in &mut teams {
        let mut commands = server.watch_commands().await;
        let grants = worker::contend(workers, soon(pace.counted_of(*kind)), Duration::ZERO).await?;
        let commands = commands.count().await;
        results.add(*kind, super::commands_per_change(commands, &grants));
    }
    results.added = route.added()?;
    Ok(results)
}

/// Runs a warm-up that checks exclusion, and measures one round, with the commands that this server executes.
pub(super) async fn round(
    results: &mut Results,
    pace: &Pace,
    kind: Kind,
    workers: &mut [Worker],
    server: Option<&RedisServer>,
) -> Result<()> {
    let warm = worker::contend(workers, soon(pace.warm_up), STAY).await?;
    let executed = match server {
        Some(server) => Some((server, Executed::before(server).await?)),
        None => None,
    };
    let span = soon(pace.contended_of(kind));
    let grants = worker::contend(workers, span, Duration::ZERO).await?;
    let mut figures = grants.of_one_lock(span, (PROCESSES * TASKS) as usize);
    if let Some((server, executed)) = executed {
        figures.push(executed.per_change(server, &grants).await?);
    }
    let violations = warm.violations() + grants.violations();
    figures.push((Metric::Violations, super::count(violations)));
    results.add(kind, figures);
    results.errors(kind, grants.errors);
    Ok(())
}

/// Starts the processes, with this many tasks each.
pub(super) async fn start(kind: Kind, url: &str, tasks: u32) -> Result<Vec<Worker>> {
    let mut workers = Vec::new();
    for process in 0..PROCESSES {
        workers.push(start_one(kind, url, tasks, process * tasks).await?);
    }
    Ok(workers)
}

/// Starts a process, whose first task has this number.
pub(super) async fn start_one(kind: Kind, url: &str, tasks: u32, first: u32) -> Result<Worker> {
    let role = Role::Contend {
        kind,
        url: url.to_owned(),
        key: KEY.to_owned(),
        tasks,
        first,
    };
    worker::start(&role).await
}
