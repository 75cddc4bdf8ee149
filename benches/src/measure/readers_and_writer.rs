//! Several processes that read all the time, and one that writes now and then.

use std::time::Duration;

use anyhow::Result;
use rlock_testkit::RedisServer;

use super::{
    Executed, Plan, count,
    processes::{self, PROCESSES},
};
use crate::{
    contention::soon, contestant::Kind, metric::Metric, results::Results, runtime, worker,
};

const READERS: u32 = 16;
/// The time inside.
const STAY: Duration = Duration::from_millis(1);
/// The length of a round, in that of a round on one lock: the writer rarely asks.
const LONGER: u32 = 4;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    runtime::current_thread()?.block_on(measure(plan))
}

async fn measure(plan: &Plan) -> Result<Results> {
    let pace = &plan.pace;
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::OursShared);
    let mut processes = processes::start(Kind::OursShared, &route.url(), READERS).await?;
    let (url, first) = (route.url(), PROCESSES * READERS);
    processes.push(processes::start_one(Kind::OursWriter, &url, 1, first).await?);
    for _ in 0..pace.rounds {
        worker::contend(&mut processes, soon(pace.warm_up), STAY).await?;
        let executed = Executed::before(&server).await?;
        let span = soon(pace.contended * LONGER);
        let mut grants = worker::contend(&mut processes, span, STAY).await?;
        let violations = count(grants.violations());
        let reads = grants.take_shared();
        let mut figures = vec![
            reads.reads_per_second(span),
            executed.per_read(&server, &reads).await?,
            reads.longest(),
        ];
        figures.push(reads.served(span, (PROCESSES * READERS) as usize));
        figures.push((Metric::Violations, violations));
        results.add(Kind::OursShared, figures);
        results.add(Kind::OursWriter, grants.waits());
        results.errors(Kind::OursShared, grants.errors);
    }
    results.added = route.added()?;
    Ok(results)
}
