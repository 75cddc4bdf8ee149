//! The latency of one uncontended acquire and release.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rlock_testkit::RedisServer;
use tokio::runtime::Runtime;

use super::{Entrant, KEY, Plan};
use crate::{
    contestant::{Kind, Seat},
    metric::{Figures, Metric},
    pace::Pace,
    results::Results,
    runtime,
    statistics::percentile,
};

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let mut kinds = vec![
        Kind::Raw,
        Kind::Ours,
        Kind::OursRetainingBriefly,
        Kind::BareScripts,
    ];
    kinds.extend(Kind::PEERS);
    measure(plan, &kinds, &runtime::current_thread()?)
}

pub(super) fn run_on_threads(plan: &Plan) -> Result<Results> {
    let kinds = [Kind::Raw, Kind::Ours];
    measure(plan, &kinds, &runtime::two_threads()?)
}

pub(super) fn run_nested(plan: &Plan) -> Result<Results> {
    let kinds = [Kind::Raw, Kind::Ours, Kind::OursNested];
    measure(plan, &kinds, &runtime::current_thread()?)
}

fn measure(plan: &Plan, kinds: &[Kind], runtime: &Runtime) -> Result<Results> {
    let server = RedisServer::start();
    let route = runtime.block_on(plan.network.reach([&server]))?;
    let mut results = plan.results(Kind::Raw);
    let entrants = runtime.block_on(Entrant::all(kinds, &route.url()))?;
    measure_all(&mut results, &plan.pace, &entrants, runtime)?;
    results.added = route.added()?;
    Ok(results)
}

pub(super) fn measure_all(
    results: &mut Results,
    pace: &Pace,
    entrants: &[Entrant],
    runtime: &Runtime,
) -> Result<()> {
    let mut seats = Vec::new();
    for entrant in entrants {
        seats.push(Some(runtime.block_on(entrant.client.seat(KEY))?));
    }
    for _ in 0..pace.rounds {
        let mut times = vec![Vec::new(); entrants.len()];
        for _ in 0..pace.slices {
            for ((entrant, seat), times) in entrants.iter().zip(&mut seats).zip(&mut times) {
                let mut own = seat.take().context("the seat is back")?;
                let (warm_up, slice) = (pace.slice / 4, pace.slice);
                // A separate task runs on one of the worker threads.
                let slice = runtime.spawn(async move {
                    pairs(&mut *own, warm_up).await?;
                    let times = pairs(&mut *own, slice).await;
                    times.map(|times| (own, times))
                });
                let (own, new) = runtime
                    .block_on(slice)?
                    .with_context(|| entrant.kind.name())?;
                *seat = Some(own);
                times.extend(new);
            }
        }
        for (entrant, times) in entrants.iter().zip(times) {
            results.add(entrant.kind, figures(times));
        }
    }
    Ok(())
}

/// Returns the microseconds of each pair.
async fn pairs(seat: &mut dyn Seat, length: Duration) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(1 << 12);
    let started = Instant::now();
    while started.elapsed() < length {
        let asked = Instant::now();
        seat.pair(Duration::ZERO).await?;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

fn figures(mut times: Vec<f64>) -> Figures {
    times.sort_unstable_by(f64::total_cmp);
    vec![
        (Metric::PairP50, percentile(&times, 50)),
        (Metric::PairP99, percentile(&times, 99)),
    ]
}
