//! A quorum beside rslock's, on the same servers in the same run: what a pair of acquire and release
//! takes, against what the slowest server takes to answer two plain requests; and how many pairs many tasks
//! do, each with a key of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use futures_util::future::{join_all, try_join_all};
use redis::{Script, aio::MultiplexedConnection};
use rlock_core::LockClient;
use rlock_tests::RedisServer;
use rslock::LockManager;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Options {
    /// How many servers, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "3,5")]
    servers: Vec<usize>,
    /// How many pairs one after another, in each round.
    #[arg(long, default_value_t = 1000)]
    pairs: usize,
    /// How many tasks at once, for the throughput.
    #[arg(long, default_value_t = 64)]
    tasks: usize,
    /// For how long they work, in each round.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Who takes part.
#[derive(Clone)]
enum Contestant {
    /// `SET NX PX` on all servers and a script that compares and deletes, each answered by all: two
    /// times the slowest answer.
    Slowest(Vec<MultiplexedConnection>),
    Ours(LockClient),
    Rslock(LockManager),
}

impl Contestant {
    fn name(&self) -> &'static str {
        match self {
            Self::Slowest(_) => "slowest answers",
            Self::Ours(_) => "ours",
            Self::Rslock(_) => "rslock",
        }
    }

    async fn pair(&self, key: &str) -> Result<()> {
        match self {
            Self::Slowest(servers) => plain(servers, key).await?,
            Self::Ours(client) => {
                let guard = client.lock(key).lease(LEASE).acquire().await?;
                guard.release().await?;
            }
            Self::Rslock(manager) => {
                let key = format!("rslock:{key}");
                let guard = manager.acquire(key.as_str(), LEASE).await?;
                guard.release().await;
            }
        }
        Ok(())
    }
}

async fn plain(servers: &[MultiplexedConnection], key: &str) -> Result<()> {
    let name = format!("plain:{key}");
    let set = servers.iter().map(|server| {
        let (mut server, name) = (server.clone(), &name);
        async move {
            let mut set = redis::cmd("SET");
            set.arg(name).arg("me").arg("NX").arg("PX").arg(30_000);
            set.query_async::<()>(&mut server).await
        }
    });
    try_join_all(set).await?;
    let script = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    let delete = servers.iter().map(|server| {
        let (mut server, name, script) = (server.clone(), &name, &script);
        async move {
            let mut call = script.key(name);
            call.arg("me").invoke_async::<i64>(&mut server).await
        }
    });
    try_join_all(delete).await?;
    Ok(())
}

/// The median time of pairs one after another, in microseconds.
async fn latency(contestant: &Contestant, pairs: usize) -> Result<f64> {
    let mut took = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let started = Instant::now();
        contestant.pair("one").await?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(took))
}

/// Pairs a second of many tasks.
async fn throughput(contestant: &Contestant, tasks: usize, time: Duration) -> Result<f64> {
    let started = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let contestant = contestant.clone();
        running.spawn(async move {
            let (key, mut pairs) = (format!("own-{task}"), 0_u32);
            while started.elapsed() < time {
                contestant.pair(&key).await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        });
    }
    let mut pairs = 0.0;
    for done in running.join_all().await {
        pairs += f64::from(done?);
    }
    Ok(pairs / started.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    for servers in &options.servers {
        let servers: Vec<_> = (0..*servers).map(|_| RedisServer::start()).collect();
        let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
        let plain = urls.iter().map(|url| async move {
            let client = redis::Client::open(url.as_str())?;
            client.get_multiplexed_async_connection().await
        });
        let plain: Result<Vec<_>, _> = join_all(plain).await.into_iter().collect();
        let contestants = [
            Contestant::Slowest(plain?),
            Contestant::Ours(LockClient::quorum(urls.clone()).await?),
            Contestant::Rslock(LockManager::new(urls)),
        ];
        let mut latencies = vec![Vec::new(); contestants.len()];
        let mut throughputs = vec![Vec::new(); contestants.len()];
        for _ in 0..options.rounds {
            for (n, contestant) in contestants.iter().enumerate() {
                latencies[n].push(latency(contestant, options.pairs).await?);
                let time = Duration::from_secs(options.seconds);
                throughputs[n].push(throughput(contestant, options.tasks, time).await?);
            }
        }
        println!(
            "{} servers      pair (µs)   pairs/s of {} tasks",
            servers.len(),
            options.tasks
        );
        for (n, contestant) in contestants.iter().enumerate() {
            let (latency, throughput) =
                (median(latencies[n].clone()), median(throughputs[n].clone()));
            println!(
                "{:<16} {latency:>9.0} {throughput:>11.0}",
                contestant.name()
            );
        }
    }
    Ok(())
}
