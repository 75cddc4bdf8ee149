//! The cost of a lock, compared with `SET NX PX` and a compare-and-delete script. Both run in turns
//! on a server that this program starts. Prints medians and ratios.

use std::time::{Duration, Instant};

use redis::{Script, aio::MultiplexedConnection};
use rlock_core::{Lock, LockClient};
use rlock_testkit::RedisServer;

const ROUNDS: usize = 9;
const PAIRS: usize = 4000;

/// The times of single pairs of acquire and release, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn at(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

async fn timed(mut pair: impl AsyncFnMut()) -> Times {
    let mut times = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let started = Instant::now();
        pair().await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Times(times)
}

async fn ours(lock: &Lock) -> Times {
    timed(async || {
        let guard = lock.acquire().await.expect("free");
        guard.release().await.expect("held");
    })
    .await
}

async fn floor(connection: &mut MultiplexedConnection) -> Times {
    let unlock = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    timed(async || {
        let mut set = redis::cmd("SET");
        set.arg("floor")
            .arg("token")
            .arg("NX")
            .arg("PX")
            .arg(30_000);
        let set: bool = set.query_async(connection).await.expect("a reply");
        let unlock = unlock
            .key("floor")
            .arg("token")
            .invoke_async::<bool>(connection)
            .await;
        assert!(set && unlock.expect("a reply"));
    })
    .await
}

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url())
        .await
        .expect("the server is up");
    let lock = client.lock("order:42");
    let plain = redis::Client::open(server.url()).expect("valid");
    let mut plain = plain
        .get_multiplexed_async_connection()
        .await
        .expect("the server is up");
    let embedded = LockClient::in_memory().lock("order:42");

    let mut commands = server.watch_commands().await;
    lock.run(async {}).await.expect("free");
    println!(
        "commands for one acquire and release: {}",
        commands.count().await
    );
    drop(commands);

    println!("{PAIRS} pairs in each of {ROUNDS} rounds; microseconds for one acquire and release");
    println!(
        "{:>5} {:>11} {:>11} {:>11} {:>11} {:>7}",
        "round", "lock p50", "p99", "floor p50", "p99", "ratio"
    );
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let (floor, ours) = (floor(&mut plain).await, ours(&lock).await);
        if round == 0 {
            continue; // warming up
        }
        let ratio = ours.at(50).as_secs_f64() / floor.at(50).as_secs_f64();
        ratios.push(ratio);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{round:>5} {:>11.1} {:>11.1} {:>11.1} {:>11.1} {ratio:>7.3}",
            micros(ours.at(50)),
            micros(ours.at(99)),
            micros(floor.at(50)),
            micros(floor.at(99)),
        );
    }
    ratios.sort_unstable_by(f64::total_cmp);
    println!("median ratio of the p50: {:.3}", ratios[ratios.len() / 2]);
    println!("embedded store: p50 {:?}", ours(&embedded).await.at(50));
}
