//! Measures the processor time that locks cost.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_benches::statistics::median;
use rlock_core::{Lock, LockClient};
use tokio::task::JoinSet;

use super::{
    cost::{Spent, version},
    ground::{Ground, Kind},
};

/// The number of locks that one client renews. In a cluster the locks of one slot share a script.
/// With 16,384 slots, almost each of a thousand locks has its own.
const RENEWED: [(&str, u32); 2] = [
    ("renewal, 1,000 locks of one client", 1_000),
    ("renewal, 10,000 locks of one client", 10_000),
];
const LEASE: Duration = Duration::from_secs(3);
/// The longest duration of a round of renewals.
const LONGEST: Duration = Duration::from_secs(10);

/// An operation, its number of clients, and its cost.
struct Row {
    what: &'static str,
    /// The number of operations in each round, and the resources used.
    rounds: Vec<(f64, Spent)>,
}

pub(crate) async fn measure(on: Kind, operations: u32, rounds: usize) -> Result<()> {
    let ground = Ground::start(on).await;
    let mut rows = Vec::new();
    for (what, clients, tasks, share) in [
        ("pair, one task", 1, 1, false),
        ("pair, 64 tasks, a key each", 1, 64, false),
        ("pair, 4 clients of 64 tasks, a key each", 4, 64, false),
        ("change, 4 clients of 1 task, one key", 4, 1, true),
        ("change, 1 client of 16 tasks, one key", 1, 16, true),
    ] {
        let locks = locks(&ground, clients, tasks, share).await?;
        let each = operations / (clients * tasks);
        pairs(&locks, each / 10).await?;
        let mut row = Row {
            what,
            rounds: Vec::new(),
        };
        for _ in 0..rounds {
            let (started, before) = begin(&ground).await?;
            pairs(&locks, each).await?;
            let spent = Spent::at(&ground, started).await? - before;
            row.rounds.push((f64::from(each * clients * tasks), spent));
        }
        rows.push(row);
    }
    for (what, held) in RENEWED {
        rows.push(renewals(&ground, (what, held), operations, rounds).await?);
    }
    show(&ground, &rows).await
}

async fn show(ground: &Ground, rows: &[Row]) -> Result<()> {
    let masters = ground.masters();
    println!(
        "redis-server {}, {} masters, {} replicas; per operation, all masters added up",
        version(masters[0]).await?,
        masters.len(),
        ground.replicas().len()
    );
    println!(
        "{:<40} {:>9} {:>8} {:>10} {:>11} {:>10}",
        "", "a second", "scripts", "server µs", "replicas µs", "client µs"
    );
    for row in rows {
        let of = |value: fn(f64, &Spent) -> f64| {
            let values = row.rounds.iter().map(|(done, spent)| value(*done, spent));
            median(&values.collect::<Vec<f64>>())
        };
        println!(
            "{:<40} {:>9.0} {:>8.2} {:>10.2} {:>11.2} {:>10.2}",
            row.what,
            of(|done, spent| done / spent.seconds),
            of(|done, spent| spent.scripts / done),
            of(|done, spent| spent.masters * 1e6 / done),
            of(|done, spent| spent.replicas * 1e6 / done),
            of(|done, spent| spent.clients * 1e6 / done),
        );
    }
    Ok(())
}

async fn begin(ground: &Ground) -> Result<(Instant, Spent)> {
    let started = Instant::now();
    Ok((started, Spent::at(ground, started).await?))
}

/// Returns a lock for each task: all the same, or all different.
async fn locks(ground: &Ground, clients: u32, tasks: u32, share: bool) -> Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for client in 0..clients {
        let connected = LockClient::connect(&ground.url()).await?;
        for task in 0..tasks {
            let number = if share { 42 } else { client * tasks + task };
            locks.push(connected.lock(format!("order:{number}")).wait_forever());
        }
    }
    Ok(locks)
}

/// Acquires and releases each of these locks this many times, all at once.
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

async fn renewals(
    ground: &Ground,
    (what, held): (&'static str, u32),
    operations: u32,
    rounds: usize,
) -> Result<Row> {
    let client = LockClient::connect(&ground.url()).await?;
    let client = &client;
    let taking = (0..held).map(|n| async move {
        let lock = client.lock(format!("order:{n}")).lease(LEASE);
        lock.acquire().await
    });
    let guards = try_join_all(taking).await?;
    // The first renewals are at separate times. Later ones share scripts.
    tokio::time::sleep(LEASE).await;
    let time = (LEASE / 3 * operations.div_ceil(held)).min(LONGEST);
    let mut row = Row {
        what,
        rounds: Vec::new(),
    };
    for _ in 0..rounds {
        let renewed = renewed(ground).await;
        let (started, before) = begin(ground).await?;
        tokio::time::sleep(time).await;
        let spent = Spent::at(ground, started).await? - before;
        let renewed = self::renewed(ground).await - renewed;
        row.rounds.push((f64::from(u32::try_from(renewed)?), spent));
    }
    for guard in &guards {
        if !guard.is_valid() {
            anyhow::bail!("{} was lost: {:?}", guard.key(), guard.lost().await);
        }
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(row)
}

/// Returns the number of renewals. Counts them by HSETNX, because no other script calls it for exclusive locks.
async fn renewed(ground: &Ground) -> u64 {
    let mut renewed = 0;
    for master in ground.masters() {
        renewed += master.command_calls("hsetnx").await;
    }
    renewed
}
