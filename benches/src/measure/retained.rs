//! The time to acquire a lock that another process retains without using it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rlock_core::{Lock, LockClient};
use rlock_testkit::RedisServer;

use super::{KEY, Plan};
use crate::{
    contestant::Kind,
    metric::{Figures, Metric},
    results::Results,
    runtime,
    statistics::percentile,
    worker::{self, Role},
};

/// The number of acquires in a round.
const TIMES: usize = 50;

/// The pause of all processes before each acquire.
const IDLE: Duration = Duration::from_millis(2);

pub(super) fn run(plan: &Plan) -> Result<Results> {
    runtime::current_thread()?.block_on(measure(plan))
}

async fn measure(plan: &Plan) -> Result<Results> {
    let server = RedisServer::start();
    let route = plan.network.reach([&server]).await?;
    let mut results = plan.results(Kind::Ours);
    let client = LockClient::connect(&route.url()).await?;
    let free = client.lock("free").wait_forever();
    let retained = client.lock(KEY).wait_forever();
    let role = Role::Retain {
        url: route.url(),
        key: KEY.to_owned(),
    };
    let mut owner = worker::start(&role).await?;
    for _ in 0..plan.pace.rounds {
        let (mut of_free, mut of_retained) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            of_free.push(acquire(&free).await?);
            worker::use_lock(&mut owner).await?;
            let is_retained = server.exists(&format!("lock:{{{KEY}}}")).await;
            ensure!(is_retained, "the other process retains the lock");
            of_retained.push(acquire(&retained).await?);
        }
        results.add(Kind::Ours, figures(of_free));
        results.add(Kind::OursRetainedElsewhere, figures(of_retained));
    }
    results.added = route.added()?;
    Ok(results)
}

/// Acquires and releases the lock. Returns the microseconds of the acquire.
async fn acquire(lock: &Lock) -> Result<f64> {
    tokio::time::sleep(IDLE).await;
    let asked = Instant::now();
    let guard = lock.acquire().await?;
    let took = asked.elapsed().as_secs_f64() * 1e6;
    guard.release().await?;
    Ok(took)
}

fn figures(mut times: Vec<f64>) -> Figures {
    times.sort_unstable_by(f64::total_cmp);
    vec![
        (Metric::AcquireP50, percentile(&times, 50)),
        (Metric::AcquireP99, percentile(&times, 99)),
    ]
}
