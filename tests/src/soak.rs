//! A soak: steady load for an hour, with cancelled calls, killed connections and short-lived
//! clients.
//!
//! Memory, tasks, threads, descriptors, connections, subscriptions and keys must not grow after the
//! warm-up. Nothing may be left at the end.

mod load;
mod sample;
mod trend;

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use rlock_core::LockClient;
use tokio::{runtime::Builder, sync::watch, task::JoinSet, time::Instant};

use self::{load::Load, sample::Sample};
use rlock_testkit::{RedisServer, leftovers};

/// Uses locks for hours and measures growth. Exit code: 0 nothing grows or is left; 1 otherwise.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// The duration.
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(30..))]
    seconds: u64,
    /// The number of tasks that acquire locks.
    #[arg(long, default_value_t = 16)]
    tasks: u64,
    /// The number of different keys.
    #[arg(long, default_value_t = 200)]
    keys: u64,
}

/// The number of clients that the tasks share.
const CLIENTS: usize = 2;

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let options = Options::parse();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    let runtime = builder.build().expect("a runtime");
    let problems = runtime.block_on(soak(&options));
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("nothing grows, and nothing is left");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn soak(options: &Options) -> Vec<String> {
    let server = Arc::new(RedisServer::start());
    let clients = clients(&server).await;
    let (over, is_over) = watch::channel(false);
    let load = Arc::new(Load::new(clients.to_vec(), options.keys));
    let mut tasks = JoinSet::new();
    for _ in 0..options.tasks {
        tasks.spawn(load::work(Arc::clone(&load), is_over.clone()));
    }
    tasks.spawn(load::disturb(Arc::clone(&server), is_over.clone()));
    tasks.spawn(load::come_and_go(server.url(), is_over));

    let samples = samples(options, &server, &load).await;
    over.send_replace(true);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics");
    }
    let mut problems = trend::growing(&samples);
    problems.extend(load.unexpected());
    problems.extend(leftovers::of_idle_clients(&server, CLIENTS).await);
    drop(load);
    for client in clients {
        if let Err(error) = client.shutdown().await {
            problems.push(format!("a client did not end in good order: {error:#}"));
        }
    }
    problems.extend(leftovers::without_holder(&server).await);
    problems
}

async fn clients(server: &RedisServer) -> [LockClient; CLIENTS] {
    let connect = async || LockClient::connect(&server.url()).await;
    [connect().await, connect().await].map(|client| client.expect("the server is up"))
}

/// Takes a sample each second. Prints a line each minute, or sixty lines in all.
async fn samples(options: &Options, server: &RedisServer, load: &Load) -> Vec<Sample> {
    let pause = (options.seconds / 60).clamp(1, 60);
    println!("{}", Sample::head());
    let started = Instant::now();
    let mut samples = Vec::new();
    for second in 1..=options.seconds {
        tokio::time::sleep_until(started + Duration::from_secs(second)).await;
        let sample = Sample::take(second, server, load).await;
        if second % pause == 0 {
            println!("{sample}");
        }
        samples.push(sample);
    }
    samples
}
