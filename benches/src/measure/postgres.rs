//! Locks in Postgres: the latency of a pair, then four processes with four tasks each that contend for one lock.

use anyhow::Result;
use rlock_testkit::PostgresServer;

use super::{
    Entrant, Plan, pair,
    processes::{self, TASKS},
};
use crate::{contestant::Kind, results::Results, runtime};

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
            processes::round(results, &plan.pace, *kind, workers, None).await?;
        }
    }
    Ok(())
}
