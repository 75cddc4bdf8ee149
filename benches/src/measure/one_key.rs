//! Many tasks of one process that contend for one lock.

use anyhow::Result;

use super::{Entrant, KEY, Plan, in_process};
use crate::{contention::Tasks, contestant::Kind, results::Results, runtime};
use rlock_testkit::RedisServer;

const TASKS: usize = 16;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let mut kinds = vec![Kind::Blpop, Kind::Mutex, Kind::Ours];
    kinds.extend(Kind::PEERS);
    runtime::two_threads()?.block_on(measure(plan, &kinds))
}

async fn measure(plan: &Plan, kinds: &[Kind]) -> Result<Results> {
    let pace = &plan.pace;
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::Blpop);
    let entrants = Entrant::all(kinds, &route.url()).await?;
    let mut teams = Vec::new();
    for entrant in &entrants {
        entrant.kind.prepare(&server, KEY).await;
        let keys = (0..TASKS).map(|_| KEY.to_owned());
        teams.push(vec![Tasks::new(&*entrant.client, 0, keys).await?]);
    }
    for _ in 0..pace.rounds {
        for (entrant, team) in entrants.iter().zip(&mut teams) {
            in_process::round(&mut results, entrant.kind, pace, team, TASKS, &server).await?;
        }
    }
    for (entrant, team) in entrants.iter().zip(&mut teams) {
        in_process::count(&mut results, entrant.kind, pace, team, &server).await;
    }
    results.added = route.added()?;
    Ok(results)
}
