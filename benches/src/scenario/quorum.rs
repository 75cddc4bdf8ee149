//! A quorum of several servers: one task, and many with a key each.

use anyhow::Result;
use rlock_tests::RedisServer;

use super::{Entrant, Scenario, own_keys, pair};
use crate::{
    contestant::{Kind, LEASE},
    pace::Pace,
    results::Results,
    runtime,
};

pub(super) fn run(scenario: Scenario, pace: &Pace, servers: usize) -> Result<Results> {
    let servers: Vec<_> = (0..servers).map(|_| RedisServer::start()).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let runtime = runtime::two_threads()?;
    let mut entrants = Vec::new();
    for kind in [Kind::RawOnAll, Kind::Ours, Kind::OursOnEach, Kind::Rslock] {
        let client = runtime.block_on(kind.connect_to_quorum(&urls, LEASE))?;
        entrants.push(Entrant { kind, client });
    }
    let mut results = Results::new(scenario, Kind::RawOnAll);
    pair::measure_all(&mut results, pace, &entrants, &runtime)?;
    runtime.block_on(own_keys::measure_all(results, pace, &entrants))
}
