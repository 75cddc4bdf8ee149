//! Measures `LockClient::list` while many locks are held, and its effect on other clients. Prints
//! the time of a list, and the p50 of acquire + release by another client, without a list and
//! during one.

use std::{
    env,
    io::{Read as _, stdin},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rlock_benches::statistics::percentile;
use rlock_core::LockClient;
use rlock_testkit::{RedisServer, Worker};
use tokio::runtime::Builder;

/// The limit for a process to acquire its locks.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures lists of locks that several processes hold.
#[derive(Parser)]
struct Options {
    /// The number of processes that hold locks.
    #[arg(long, default_value_t = 10)]
    processes: usize,
    /// The number of locks of each process.
    #[arg(long, default_value_t = 1_000)]
    locks: usize,
    /// The number of lists.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// Holds locks until its input ends.
    #[command(hide = true)]
    Hold {
        url: String,
        locks: usize,
        number: usize,
    },
}

fn main() -> Result<()> {
    let options = Options::parse();
    match options.role {
        Some(Role::Hold { url, locks, number }) => runtime()?.block_on(hold(&url, locks, number)),
        None => runtime()?.block_on(measure(&options)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

async fn hold(url: &str, locks: usize, number: usize) -> Result<()> {
    let client = LockClient::builder()
        .service("holder", "1.0")
        .connect(url)
        .await?;
    let mut guards = Vec::with_capacity(locks);
    for lock in 0..locks {
        let key = format!("order:{number}:{lock}");
        guards.push(
            client
                .lock(key)
                .name("order:<process>:<id>")
                .acquire()
                .await?,
        );
    }
    println!("held");
    let _ = stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// The current phase of the measurement.
const BEFORE: u8 = 0;
const RUNS: u8 = 1;
const OVER: u8 = 2;

async fn measure(options: &Options) -> Result<()> {
    let server = RedisServer::start();
    let url = server.url();
    let mut holders = Vec::new();
    for number in 0..options.processes {
        let mut command = Command::new(env::current_exe()?);
        let (locks, number) = (options.locks.to_string(), number.to_string());
        command.args(["hold", &url, &locks, &number]);
        holders.push(Worker::start(&mut command));
    }
    for holder in &mut holders {
        holder.expect_line(PATIENCE, "held").await;
    }
    let expected = options.processes * options.locks;
    let client = LockClient::connect(&url).await?;
    let phase = Arc::new(AtomicU8::new(OVER));
    let is_over = Arc::new(AtomicBool::new(false));
    let pairs = pairs(url.clone(), Arc::clone(&phase), Arc::clone(&is_over));
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        // As long as a list, so that both phases see the same noise.
        let pause = times.last().copied().unwrap_or(0.2_f64).max(0.05);
        phase.store(BEFORE, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        phase.store(RUNS, Ordering::Relaxed);
        let began = Instant::now();
        let mut list = client.list("*");
        let mut found = 0;
        while list.next().await?.is_some() {
            found += 1;
        }
        times.push(began.elapsed().as_secs_f64());
        phase.store(OVER, Ordering::Relaxed);
        // The list may contain the lock of the pairs.
        ensure!(
            found == expected || found == expected + 1,
            "{found} of {expected} locks"
        );
        ensure!(
            list.missed() == 0,
            "{} clients did not reply",
            list.missed()
        );
    }
    is_over.store(true, Ordering::Relaxed);
    let (before, during) = pairs.join().ok().context("the pairs panicked")??;
    let sorted = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let (times, before, during) = (sorted(times), sorted(before), sorted(during));
    let (idle, busy) = (percentile(&before, 50), percentile(&during, 50));
    println!(
        "{expected} locks in {} processes, {} lists",
        options.processes, options.rounds
    );
    println!(
        "list: p50 {:.0} ms, slowest {:.0} ms",
        percentile(&times, 50) * 1e3,
        percentile(&times, 100) * 1e3
    );
    println!(
        "pair of another client: p50 {:.1} µs without a list ({} pairs), {:.1} µs during one ({} pairs): {:.2} x",
        idle * 1e6,
        before.len(),
        busy * 1e6,
        during.len(),
        busy / idle
    );
    Ok(())
}

/// The times of pairs of acquire and release in seconds, without a list and during one.
type Pairs = (Vec<f64>, Vec<f64>);

/// Acquires and releases a lock on its own thread until `is_over`.
fn pairs(url: String, phase: Arc<AtomicU8>, is_over: Arc<AtomicBool>) -> JoinHandle<Result<Pairs>> {
    thread::spawn(move || {
        runtime()?.block_on(async {
            let client = LockClient::connect(&url).await?;
            let lock = client.lock("pair");
            let (mut before, mut during) = (Vec::new(), Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                let (at_first, began) = (phase.load(Ordering::Relaxed), Instant::now());
                lock.acquire().await?.release().await?;
                let took = began.elapsed().as_secs_f64();
                if phase.load(Ordering::Relaxed) != at_first {
                    continue;
                }
                match at_first {
                    BEFORE => before.push(took),
                    RUNS => during.push(took),
                    _ => {}
                }
            }
            Ok((before, during))
        })
    })
}
