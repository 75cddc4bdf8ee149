//! Many tasks with uncontended locks: throughput.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::RedisServer;

use super::{Entrant, Plan};
use crate::{
    contention::{Tasks, soon},
    contestant::Kind,
    metric::Metric,
    pace::Pace,
    results::Results,
    runtime,
    statistics::median,
};

const TASKS: usize = 64;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let mut kinds = vec![
        Kind::Raw,
        Kind::Ours,
        Kind::OursRetaining,
        Kind::BareScripts,
    ];
    kinds.extend(Kind::PEERS);
    runtime::two_threads()?.block_on(measure(plan, &kinds))
}

async fn measure(plan: &Plan, kinds: &[Kind]) -> Result<Results> {
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let entrants = Entrant::all(kinds, &route.url()).await?;
    let mut results = plan.results(Kind::Raw);
    measure_all(&mut results, &plan.pace, &entrants).await?;
    results.added = route.added()?;
    Ok(results)
}

pub(super) async fn measure_all(
    results: &mut Results,
    pace: &Pace,
    entrants: &[Entrant],
) -> Result<()> {
    let mut tasks = Vec::new();
    for entrant in entrants {
        let keys = (0..TASKS).map(|n| format!("order:{n}"));
        tasks.push(Tasks::new(&*entrant.client, 0, keys).await?);
    }
    for _ in 0..pace.rounds {
        let mut slices = vec![Vec::new(); entrants.len()];
        for _ in 0..pace.slices {
            for ((entrant, tasks), slices) in entrants.iter().zip(&mut tasks).zip(&mut slices) {
                tasks.run(soon(pace.slice / 4), Duration::ZERO).await;
                let span = soon(pace.slice);
                let grants = tasks.run(span, Duration::ZERO).await;
                slices.extend(
                    grants
                        .of_own_locks(span)
                        .into_iter()
                        .map(|(_, value)| value),
                );
                results.errors(entrant.kind, grants.errors);
            }
        }
        for (entrant, slices) in entrants.iter().zip(slices) {
            let figures = vec![(Metric::PairsPerSecond, median(&slices))];
            results.add(entrant.kind, figures);
        }
    }
    Ok(())
}
