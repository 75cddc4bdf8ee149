//! Crowds before one lock.

use anyhow::Result;
use rlock_tests::RedisServer;

use super::{Entrant, KEY, Scenario, in_process};
use crate::{contention::Tasks, contestant::Kind, pace::Pace, results::Results, runtime};

/// A thousand tasks of one client.
pub(super) fn run_tasks(scenario: Scenario, pace: &Pace) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(scenario, pace, 1, 1_000))
}

/// A hundred clients of this process, which share nothing but the process.
pub(super) fn run_clients(scenario: Scenario, pace: &Pace) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(scenario, pace, 100, 1))
}

async fn measure(
    scenario: Scenario,
    pace: &Pace,
    clients: usize,
    tasks_each: u32,
) -> Result<Results> {
    let server = RedisServer::start();
    let mut results = Results::new(scenario, Kind::Ours);
    let entrants = Entrant::all(&vec![Kind::Ours; clients], &server.url()).await?;
    let mut team = Vec::new();
    let mut tasks = 0;
    for entrant in &entrants {
        let keys = (0..tasks_each).map(|_| KEY.to_owned());
        team.push(Tasks::new(&*entrant.client, tasks, keys).await?);
        tasks += tasks_each;
    }
    let pace = &pace.for_crowds();
    for _ in 0..pace.rounds {
        in_process::round(&mut results, Kind::Ours, pace, &mut team, tasks as usize).await;
    }
    in_process::count(&mut results, Kind::Ours, pace, &mut team, &server).await;
    Ok(results)
}
