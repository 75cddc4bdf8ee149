//! Many tasks of one process that want one lock.

use anyhow::Result;

use super::{Entrant, KEY, Scenario, in_process};
use crate::{contention::Tasks, contestant::Kind, pace::Pace, results::Results, runtime};
use rlock_tests::RedisServer;

const TASKS: usize = 16;

pub(super) fn run(scenario: Scenario, pace: &Pace) -> Result<Results> {
    let mut kinds = vec![Kind::Blpop, Kind::Ours];
    kinds.extend(Kind::PEERS);
    runtime::two_threads()?.block_on(measure(scenario, pace, &kinds))
}

async fn measure(scenario: Scenario, pace: &Pace, kinds: &[Kind]) -> Result<Results> {
    let server = RedisServer::start();
    let mut results = Results::new(scenario, Kind::Blpop);
    let entrants = Entrant::all(kinds, &server.url()).await?;
    let mut teams = Vec::new();
    for entrant in &entrants {
        entrant.kind.prepare(&server, KEY).await;
        let keys = (0..TASKS).map(|_| KEY.to_owned());
        teams.push(vec![Tasks::new(&*entrant.client, 0, keys).await?]);
    }
    for _ in 0..pace.rounds {
        for (entrant, team) in entrants.iter().zip(&mut teams) {
            in_process::round(&mut results, entrant.kind, pace, team, TASKS).await;
        }
    }
    for (entrant, team) in entrants.iter().zip(&mut teams) {
        in_process::count(&mut results, entrant.kind, pace, team, &server).await;
    }
    Ok(results)
}
