//! Locks in Postgres: the latency of a pair, then four processes with four tasks each that contend for one lock.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::PostgresServer;

use super::{Entrant, Plan, STAY, pair, processes};
use crate::{
    contention::soon, contestant::Kind, metric::Metric, results::Results, runtime, worker,
};

const TASKS: u32 = 4;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let (server, runtime) = (PostgresServer::start(), runtime::current_thread()?);
    let mut results = plan.results(Kind::PostgresFloor);
    let mut kinds = vec![Kind::PostgresFloor, Kind::Ours, Kind::OursNested];
    kinds.extend(Kind::POSTGRES_PEERS);
    let entrants = runtime.block_on(Entrant::all(&kinds, &server.url()))?;
    pair::measure_all(&mut results, &plan.pace, &entrants, &runtime)?;
    drop(entrants);
    runtime.block_on(contend(plan, &server.url(), &mut results))?;
    Ok(results)
}

async fn contend(plan: &Plan, url: &str, results: &mut Results) -> Result<()> {
    let mut teams = Vec::new();
    for kind in [Kind::Ours].into_iter().chain(Kind::POSTGRES_PEERS) {
        teams.push((kind, processes::start(kind, url, TASKS).await?));
    }
    for _ in 0..plan.pace.rounds {
        for (kind, workers) in &mut teams {
            let warm = worker::contend(workers, soon(plan.pace.warm_up), STAY).await?;
            let span = soon(plan.pace.contended_of(*kind));
            let grants = worker::contend(workers, span, Duration::ZERO).await?;
            let mut figures = grants.of_one_lock(span, (processes::PROCESSES * TASKS) as usize);
            let violations = warm.violations() + grants.violations();
            figures.push((Metric::Violations, super::count(violations)));
            results.add(*kind, figures);
            results.errors(*kind, grants.errors);
        }
    }
    Ok(())
}
