//! Measures the transfer of one lock between 16 tasks of one process, from one entry to the next.
//! The wake-ups of threads by the kernel dominate the time, so a run may have two paces and
//! alternate between them.
//!
//! The program cuts a run into stretches of a few milliseconds. A stretch is quick if its median is
//! below the bound, and slow otherwise. Consecutive stretches of the same kind form a spell.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use futures_util::{FutureExt as _, future::BoxFuture};
use redis::{AsyncConnectionConfig, Client};
use rlock_benches::statistics::{median, percentile};
use rlock_core::LockClient;
use rlock_testkit::RedisServer;
use tokio::{runtime::Builder, task::JoinSet};

const TASKS: usize = 16;
const KEY: &str = "order:42";

/// Prints the times between consecutive holders in the course of a run.
#[derive(Parser)]
struct Options {
    /// The duration of each run in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The number of runs of each contestant. They take turns.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Transfers below this many microseconds are quick.
    #[arg(long, default_value_t = 60.0)]
    under: f64,
    /// The duration of a stretch in milliseconds.
    #[arg(long, default_value_t = 2.0)]
    stretch: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let server = RedisServer::start();
    let url = server.url();
    println!(
        "{:<6} {:>9} {:>22} {:>8} {:>24} {:>24} {:>24}",
        "",
        "changes/s",
        "wait ms: p50, p99",
        "p99/p50",
        format!("changes < {} µs: share", options.under),
        "quick µs: time, p50, p99",
        "slow µs: time, p50, p99",
    );
    for _ in 0..options.runs {
        for (name, run) in [("ours", ours(&url).boxed()), ("BLPOP", blpop(&url).boxed())] {
            let length = Duration::from_secs(options.seconds);
            let seats = runtime.block_on(run)?;
            let entries = runtime.block_on(go_round(seats, length))?;
            show(name, &entries, &options);
        }
    }
    Ok(())
}

/// A task's operation: acquires the lock, records the time of its entry, and releases the lock.
type Seat = Box<dyn FnMut() -> BoxFuture<'static, Result<Instant>> + Send>;

async fn ours(url: &str) -> Result<Vec<Seat>> {
    let client = LockClient::connect(url).await?;
    let seat = || {
        let lock = client.lock(KEY).wait_forever();
        Box::new(move || {
            let lock = lock.clone();
            async move {
                let guard = lock.acquire().await?;
                let entered = Instant::now();
                guard.release().await?;
                Ok(entered)
            }
            .boxed()
        }) as Seat
    };
    Ok((0..TASKS).map(|_| seat()).collect())
}

/// Passes a token through a list. Each task has its own connection.
async fn blpop(url: &str) -> Result<Vec<Seat>> {
    let client = Client::open(url)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut seats = Vec::new();
    for task in 0..TASKS {
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        if task == 0 {
            let _: u64 = redis::cmd("DEL")
                .arg("token")
                .query_async(&mut connection)
                .await?;
            give_back(&mut connection).await?;
        }
        seats.push(Box::new(move || {
            let mut connection = connection.clone();
            async move {
                let mut pop = redis::cmd("BLPOP");
                pop.arg("token").arg(0);
                let _: (String, String) = pop.query_async(&mut connection).await?;
                let entered = Instant::now();
                give_back(&mut connection).await?;
                Ok(entered)
            }
            .boxed()
        }) as Seat);
    }
    Ok(seats)
}

async fn give_back(connection: &mut redis::aio::MultiplexedConnection) -> Result<()> {
    let mut push = redis::cmd("LPUSH");
    push.arg("token").arg("token");
    let _: u64 = push.query_async(connection).await?;
    Ok(())
}

/// An entry: its time, its task, and its wait.
#[derive(Clone, Copy)]
struct Entry {
    entered: Instant,
    task: usize,
    wait: Duration,
}

/// Runs the tasks, and returns all entries in order.
async fn go_round(seats: Vec<Seat>, length: Duration) -> Result<Vec<Entry>> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (task, mut seat) in seats.into_iter().enumerate() {
        let all = Arc::clone(&all);
        tasks.spawn(async move {
            let mut entries = Vec::with_capacity(1 << 16);
            while start.elapsed() < length {
                let asked = Instant::now();
                let entered = seat().await?;
                let wait = entered - asked;
                entries.push(Entry {
                    entered,
                    task,
                    wait,
                });
            }
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(entries);
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let mut all = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
    all.sort_unstable_by_key(|entry| entry.entered);
    Ok(all)
}

/// Consecutive transfers at one pace, in microseconds.
struct Spell {
    quick: bool,
    changes: Vec<f64>,
}

impl Spell {
    fn length(&self) -> f64 {
        self.changes.iter().sum()
    }
}

/// Cuts transfers into stretches of this many microseconds, and merges stretches of the same kind.
fn spells(changes: &[f64], stretch: f64, under: f64) -> Vec<Spell> {
    let mut spells: Vec<Spell> = Vec::new();
    let (mut from, mut length) = (0, 0.0);
    for (index, change) in changes.iter().enumerate() {
        length += change;
        if length < stretch {
            continue;
        }
        let part = &changes[from..=index];
        (from, length) = (index + 1, 0.0);
        let quick = median(part) < under;
        match spells.last_mut() {
            Some(last) if last.quick == quick => last.changes.extend(part),
            _ => spells.push(Spell {
                quick,
                changes: part.to_vec(),
            }),
        }
    }
    spells
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn show(name: &str, entries: &[Entry], options: &Options) {
    let changes: Vec<f64> = entries
        .windows(2)
        .filter(|pair| pair[0].task != pair[1].task)
        .map(|pair| (pair[1].entered - pair[0].entered).as_secs_f64() * 1e6)
        .collect();
    let waits = sorted(entries.iter().map(|entry| entry.wait.as_secs_f64() * 1e3));
    let (p50, p99) = (percentile(&waits, 50), percentile(&waits, 99));
    let total: f64 = changes.iter().sum();
    let quick = changes.iter().filter(|change| **change < options.under);
    let share = 100.0 * quick.count() as f64 / changes.len() as f64;
    let spells = spells(&changes, options.stretch * 1e3, options.under);
    let pace = |quick: bool| {
        let of_it = || spells.iter().filter(move |spell| spell.quick == quick);
        let times = sorted(of_it().flat_map(|spell| spell.changes.iter().copied()));
        let time = 100.0 * times.iter().sum::<f64>() / total;
        let lengths = sorted(of_it().map(|spell| spell.length() / 1e3));
        let text = format!(
            "{time:.0} %, {:.0}, {:.0}",
            percentile(&times, 50),
            percentile(&times, 99)
        );
        (text, lengths)
    };
    let ((quick, of_quick), (slow, of_slow)) = (pace(true), pace(false));
    println!(
        "{name:<6} {:>9.0} {:>22} {:>8.2} {:>24} {quick:>24} {slow:>24}",
        changes.len() as f64 / total * 1e6,
        format!("{p50:.2}, {p99:.2}"),
        p99 / p50,
        format!("{share:.0} %"),
    );
    for (kind, lengths) in [("quick", of_quick), ("slow", of_slow)] {
        println!(
            "       {} {kind} spells; ms p50 {:.0}, p90 {:.0}, most {:.0}",
            lengths.len(),
            percentile(&lengths, 50),
            percentile(&lengths, 90),
            percentile(&lengths, 100),
        );
    }
    println!("       µs a change: {}", histogram(&changes));
}

/// Formats the share of each range of microseconds.
#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn histogram(changes: &[f64]) -> String {
    let edges = [
        0.0,
        20.0,
        30.0,
        40.0,
        50.0,
        60.0,
        80.0,
        100.0,
        120.0,
        150.0,
        200.0,
        f64::INFINITY,
    ];
    let parts = edges.windows(2).map(|edge| {
        let inside = changes
            .iter()
            .filter(|change| **change >= edge[0] && **change < edge[1]);
        let share = 100.0 * inside.count() as f64 / changes.len() as f64;
        format!("{}+: {share:.0} %", edge[0])
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::spells;

    #[test]
    fn stretches_of_one_pace_in_a_row_are_one_spell() {
        let mut changes = vec![30.0; 200];
        changes.extend([100.0; 40]);
        // Single slow transfers do not end a spell.
        changes[50] = 500.0;
        let spells = spells(&changes, 1_000.0, 60.0);
        let kinds: Vec<(bool, usize)> = spells
            .iter()
            .map(|spell| (spell.quick, spell.changes.len()))
            .collect();
        assert_eq!(kinds.len(), 2, "{kinds:?}");
        assert!(kinds[0].0 && kinds[0].1.abs_diff(200) <= 10, "{kinds:?}");
        assert!(!kinds[1].0 && kinds[1].1.abs_diff(40) <= 10, "{kinds:?}");
    }
}
