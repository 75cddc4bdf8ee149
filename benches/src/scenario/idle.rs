//! Locks that are held and renewed, and what that costs their client.
//!
//! Each contestant has a process and a server of its own. This framework and the floors run side by
//! side; peers, which are busy all the time, one after another.

use std::time::Duration;

use anyhow::Result;
use rlock_tests::{CommandWatch, RedisServer, Worker};

use super::Scenario;
use crate::{
    contestant::Kind,
    metric::Metric,
    pace::Pace,
    results::Results,
    runtime,
    worker::{self, Role},
};

const WINDOW: Duration = Duration::from_secs(1);

/// Windows before the first that counts: locks that were taken at different moments may come to be
/// renewed together.
const SETTLING: usize = 3;

pub(super) fn run(
    scenario: Scenario,
    pace: &Pace,
    count: usize,
    peers: &[Kind],
) -> Result<Results> {
    runtime::current_thread()?.block_on(measure(scenario, pace, count, peers))
}

async fn measure(scenario: Scenario, pace: &Pace, count: usize, peers: &[Kind]) -> Result<Results> {
    let mut results = Results::new(scenario, Kind::Pexpire);
    results.apart = true;
    let mut together = Vec::new();
    for kind in [Kind::Pexpire, Kind::PexpireScript, Kind::Ours] {
        together.push(Holder::start(kind, count).await?);
    }
    windows(&mut results, &mut together, pace.windows, count).await?;
    drop(together);
    for &kind in peers.iter().filter(|kind| **kind != Kind::RedisLock) {
        let mut alone = [Holder::start(kind, count).await?];
        let windows_of_peers = pace.windows.min(3);
        windows(&mut results, &mut alone, windows_of_peers, count).await?;
    }
    Ok(results)
}

/// A process that holds locks, and its server.
struct Holder {
    kind: Kind,
    worker: Worker,
    commands: CommandWatch,
    _server: RedisServer,
}

impl Holder {
    async fn start(kind: Kind, count: usize) -> Result<Self> {
        let server = RedisServer::start();
        let url = server.url();
        let worker = worker::start(&Role::Idle { kind, url, count }).await?;
        Ok(Self {
            kind,
            worker,
            commands: server.watch_commands().await,
            _server: server,
        })
    }
}

/// Measures window by window, after those in which everything settles.
async fn windows(
    results: &mut Results,
    holders: &mut [Holder],
    windows: usize,
    count: usize,
) -> Result<()> {
    for window in 0..SETTLING + windows {
        tokio::time::sleep(WINDOW).await;
        for holder in &mut *holders {
            let cost = worker::cost(&mut holder.worker).await?;
            let commands = holder.commands.count().await;
            holder.commands.clear().await;
            if window < SETTLING {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "counts of a second")]
            let commands = commands as f64;
            results.add(
                holder.kind,
                vec![
                    (
                        Metric::ProcessorTime,
                        cost.processor_seconds * 1e3 / cost.seconds,
                    ),
                    (Metric::CommandsPerSecond, commands / cost.seconds),
                    (Metric::BytesPerLock, cost.resident / super::count(count)),
                ],
            );
        }
    }
    Ok(())
}
