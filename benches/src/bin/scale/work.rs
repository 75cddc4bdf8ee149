//! Processor time and bytes.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_benches::statistics::median;
use rlock_core::{Lock, LockClient};
use rlock_tests::RedisServer;
use tokio::task::JoinSet;

use super::cost::{Spent, version};

const RENEWED: u32 = 10_000;
const LEASE: Duration = Duration::from_secs(3);

/// What is done, by how many, and what each one of it cost.
struct Row {
    what: &'static str,
    /// How much was done in each round, and what that took.
    rounds: Vec<(f64, Spent)>,
}

pub(crate) async fn measure(operations: u32, rounds: usize) -> Result<()> {
    let server = RedisServer::start();
    let mut rows = Vec::new();
    for (what, clients, tasks, share) in [
        ("pair, one task", 1, 1, false),
        ("pair, 64 tasks, a key each", 1, 64, false),
        ("pair, 4 clients of 64 tasks, a key each", 4, 64, false),
        ("change, 4 clients of 1 task, one key", 4, 1, true),
        ("change, 1 client of 16 tasks, one key", 1, 16, true),
    ] {
        let locks = locks(&server, clients, tasks, share).await?;
        let each = operations / (clients * tasks);
        pairs(&locks, each / 10).await?;
        let mut row = Row {
            what,
            rounds: Vec::new(),
        };
        for _ in 0..rounds {
            let (started, before) = begin(&server).await?;
            pairs(&locks, each).await?;
            let spent = Spent::by(&server, started).await? - before;
            row.rounds.push((f64::from(each * clients * tasks), spent));
        }
        rows.push(row);
    }
    rows.push(renewals(&server, operations, rounds).await?);

    println!(
        "redis-server {}, for each one, as the server counts",
        version(&server).await?
    );
    println!(
        "{:<40} {:>9} {:>10} {:>12} {:>9} {:>10}",
        "", "a second", "server µs", "of its time", "bytes in", "bytes out"
    );
    for row in &rows {
        let of = |value: fn(f64, &Spent) -> f64| {
            let values = row.rounds.iter().map(|(done, spent)| value(*done, spent));
            median(&values.collect::<Vec<f64>>())
        };
        println!(
            "{:<40} {:>9.0} {:>10.2} {:>10.0} % {:>9.0} {:>10.0}",
            row.what,
            of(|done, spent| done / spent.seconds),
            of(|done, spent| spent.processor * 1e6 / done),
            of(|_, spent| 100.0 * spent.processor / spent.seconds),
            of(|done, spent| spent.received / done),
            of(|done, spent| spent.sent / done),
        );
    }
    Ok(())
}

async fn begin(server: &RedisServer) -> Result<(Instant, Spent)> {
    let started = Instant::now();
    Ok((started, Spent::by(server, started).await?))
}

/// A lock for each task: all the same, or all different.
async fn locks(server: &RedisServer, clients: u32, tasks: u32, share: bool) -> Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for client in 0..clients {
        let connected = LockClient::connect(&server.url()).await?;
        for task in 0..tasks {
            let number = if share { 42 } else { client * tasks + task };
            locks.push(connected.lock(format!("order:{number}")).wait_forever());
        }
    }
    Ok(locks)
}

/// Takes and gives back each of these so many times, all at once.
async fn pairs(locks: &[Lock], each: u32) -> Result<()> {
    let mut running = JoinSet::new();
    for lock in locks {
        let lock = lock.clone();
        running.spawn(async move {
            for _ in 0..each {
                lock.acquire().await?.release().await?;
            }
            anyhow::Ok(())
        });
    }
    for done in running.join_all().await {
        done?;
    }
    Ok(())
}

async fn renewals(server: &RedisServer, operations: u32, rounds: usize) -> Result<Row> {
    let client = LockClient::connect(&server.url()).await?;
    let client = &client;
    let taking = (0..RENEWED).map(|n| async move {
        let lock = client.lock(format!("order:{n}")).lease(LEASE);
        lock.acquire().await
    });
    let guards = try_join_all(taking).await?;
    // At first they are renewed as they were taken, then together.
    tokio::time::sleep(LEASE).await;
    let time = LEASE / 3 * operations.div_ceil(RENEWED);
    let mut row = Row {
        what: "renewal, 10,000 locks of one client",
        rounds: Vec::new(),
    };
    for _ in 0..rounds {
        let renewed = server.command_calls("hexists").await;
        let (started, before) = begin(server).await?;
        tokio::time::sleep(time).await;
        let spent = Spent::by(server, started).await? - before;
        let renewed = server.command_calls("hexists").await - renewed;
        row.rounds.push((f64::from(u32::try_from(renewed)?), spent));
    }
    anyhow::ensure!(
        guards.iter().all(rlock_core::LockGuard::is_valid),
        "a lock was lost"
    );
    for guard in guards {
        guard.release().await?;
    }
    Ok(row)
}
