//! Many tasks of one process that share a lock, with and without writers, compared with `tokio::sync::RwLock`.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::RedisServer;

use super::{Entrant, Executed, KEY, Plan, count};
use crate::{
    contention::{Tasks, soon},
    contestant::Kind,
    metric::Metric,
    results::Results,
    runtime,
};

const TASKS: usize = 64;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(plan))
}

async fn measure(plan: &Plan) -> Result<Results> {
    let pace = &plan.pace;
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::RwLock);
    let kinds = [
        Kind::RwLock,
        Kind::OursShared,
        Kind::RwLockFewWrites,
        Kind::OursSharedFewWrites,
    ];
    let entrants = Entrant::all(&kinds, &route.url()).await?;
    for _ in 0..pace.rounds {
        for entrant in &entrants {
            let keys = (0..TASKS).map(|_| KEY.to_owned());
            let mut tasks = Tasks::new(&*entrant.client, 0, keys).await?;
            tasks.run(soon(pace.warm_up), Duration::ZERO).await;
            let executed = Executed::before(&server).await?;
            let span = soon(pace.contended_of(entrant.kind));
            let mut grants = tasks.run(span, Duration::ZERO).await;
            let violations = count(grants.violations());
            let reads = grants.take_shared();
            let figures = vec![
                reads.reads_per_second(span),
                executed.per_read(&server, &reads).await?,
                (Metric::Violations, violations),
            ];
            results.add(entrant.kind, figures);
            results.errors(entrant.kind, grants.errors);
        }
    }
    results.added = route.added()?;
    Ok(results)
}
