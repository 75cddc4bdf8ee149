//! A quorum of several servers: one task, and many tasks with a key each.

use anyhow::Result;
use rlock_testkit::RedisServer;

use super::{Entrant, Plan, own_keys, pair};
use crate::{
    contestant::{Kind, LEASE},
    results::Results,
    runtime,
};

pub(super) fn run(plan: &Plan, servers: usize) -> Result<Results> {
    let servers: Vec<_> = (0..servers).map(|_| RedisServer::start()).collect();
    let runtime = runtime::two_threads()?;
    let route = runtime.block_on(plan.network.reach(&servers))?;
    let urls = route.urls();
    let mut entrants = Vec::new();
    for kind in [Kind::RawOnAll, Kind::Ours, Kind::OursOnEach, Kind::Rslock] {
        let client = runtime.block_on(kind.connect_to_quorum(&urls, LEASE))?;
        entrants.push(Entrant { kind, client });
    }
    let mut results = plan.results(Kind::RawOnAll);
    pair::measure_all(&mut results, &plan.pace, &entrants, &runtime)?;
    runtime.block_on(own_keys::measure_all(&mut results, &plan.pace, &entrants))?;
    results.added = route.added()?;
    Ok(results)
}
