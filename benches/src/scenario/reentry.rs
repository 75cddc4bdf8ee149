//! Nested entries, which no peer has, compared with the acquire of a free lock.

use std::time::Instant;

use anyhow::Result;
use rlock_core::{Lock, LockClient, Reentry};
use rlock_testkit::RedisServer;

use super::{KEY, Plan, count};
use crate::{
    contestant::Kind,
    metric::{Figures, Metric},
    network::Route,
    pace::Pace,
    results::Results,
    runtime,
    statistics::percentile,
};

/// The number of nested entries whose commands are counted.
const COUNTED: usize = 200;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    runtime::current_thread()?.block_on(measure(plan))
}

async fn measure(plan: &Plan) -> Result<Results> {
    let pace = &plan.pace;
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::Ours);
    let outer = LockClient::connect(&route.url()).await?.lock(KEY);
    let counted = nested(&route, Reentry::Counted).await?;
    let local = nested(&route, Reentry::Local).await?;
    for _ in 0..pace.rounds {
        for _ in 0..pace.slices {
            results.add(Kind::Ours, timed(&outer, pace).await?);
            for (kind, lock) in [
                (Kind::OursNested, &counted),
                (Kind::OursNestedLocally, &local),
            ] {
                let figures = lock.run(async { timed(lock, pace).await }).await??;
                results.add(kind, figures);
            }
        }
    }
    let mut commands = server.watch_commands().await;
    pairs(&outer, COUNTED).await?;
    results.add(Kind::Ours, per_pair(commands.count().await));
    for (kind, lock) in [
        (Kind::OursNested, &counted),
        (Kind::OursNestedLocally, &local),
    ] {
        let body = async {
            commands.clear().await;
            pairs(lock, COUNTED).await?;
            anyhow::Ok(commands.count().await)
        };
        let sent = lock.run(body).await??;
        results.add(kind, per_pair(sent));
    }
    results.added = route.added()?;
    Ok(results)
}

async fn nested(route: &Route, reentry: Reentry) -> Result<Lock> {
    let builder = LockClient::builder().reentry(reentry);
    let client = builder.connect(&route.url()).await?;
    Ok(client.lock(format!("{reentry:?}")))
}

async fn pairs(lock: &Lock, pairs: usize) -> Result<()> {
    for _ in 0..pairs {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

async fn timed(lock: &Lock, pace: &Pace) -> Result<Figures> {
    let mut times = Vec::with_capacity(1 << 12);
    let started = Instant::now();
    while started.elapsed() < pace.slice / 2 {
        let asked = Instant::now();
        pairs(lock, 1).await?;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(vec![
        (Metric::PairP50, percentile(&times, 50)),
        (Metric::PairP99, percentile(&times, 99)),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "a count of a few hundred")]
fn per_pair(commands: u64) -> Figures {
    vec![(Metric::CommandsPerPair, commands as f64 / count(COUNTED))]
}
