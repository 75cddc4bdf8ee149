//! Large numbers of waiters for one lock.

use anyhow::Result;
use rlock_testkit::RedisServer;

use super::{Entrant, KEY, Plan, in_process};
use crate::{contention::Tasks, contestant::Kind, results::Results, runtime};

/// A thousand tasks of one client.
pub(super) fn run_tasks(plan: &Plan) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(plan, 1, 1_000))
}

/// A hundred independent clients of this process.
pub(super) fn run_clients(plan: &Plan) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(plan, 100, 1))
}

async fn measure(plan: &Plan, clients: usize, tasks_each: u32) -> Result<Results> {
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::Ours);
    let entrants = Entrant::all(&vec![Kind::Ours; clients], &route.url()).await?;
    let mut team = Vec::new();
    let mut tasks = 0;
    for entrant in &entrants {
        let keys = (0..tasks_each).map(|_| KEY.to_owned());
        team.push(Tasks::new(&*entrant.client, tasks, keys).await?);
        tasks += tasks_each;
    }
    let pace = &plan.pace.for_crowds();
    for _ in 0..pace.rounds {
        let (team, tasks) = (&mut team, tasks as usize);
        in_process::round(&mut results, Kind::Ours, pace, team, tasks, &server).await?;
    }
    in_process::count(&mut results, Kind::Ours, pace, &mut team, &server).await;
    results.added = route.added()?;
    Ok(results)
}
