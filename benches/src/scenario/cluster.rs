//! Many tasks whose locks nobody else wants, at a cluster of three masters beside one server.

use anyhow::Result;
use rlock_tests::{RedisCluster, RedisServer};

use super::{Entrant, Scenario, own_keys};
use crate::{
    contestant::{Kind, LEASE},
    pace::Pace,
    results::Results,
    runtime,
};

pub(super) fn run(scenario: Scenario, pace: &Pace) -> Result<Results> {
    runtime::two_threads()?.block_on(measure(scenario, pace))
}

async fn measure(scenario: Scenario, pace: &Pace) -> Result<Results> {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start().await);
    let mut entrants = Vec::new();
    for (kind, url) in [
        (Kind::Ours, server.url()),
        (Kind::OursAtCluster, cluster.url()),
    ] {
        let client = Kind::Ours.connect(&url, LEASE).await?;
        entrants.push(Entrant { kind, client });
    }
    own_keys::measure_all(Results::new(scenario, Kind::Ours), pace, &entrants).await
}
