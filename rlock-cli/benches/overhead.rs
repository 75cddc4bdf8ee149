//! Times `rlock run -- true`, `flock -n FILE true` and `true` alone, in turns, with a server on this machine: `cargo
//! bench -p rlock-cli --bench overhead -- [ROUNDS]`.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use rlock_testkit::RedisServer;

const ROUNDS: usize = 300;

/// A command, and how long each of its runs took.
struct Contestant {
    name: &'static str,
    command: Command,
    times: Vec<Duration>,
}

impl Contestant {
    fn new(name: &'static str, program: &str, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words);
        Self {
            name,
            command,
            times: Vec::new(),
        }
    }

    fn run(&mut self) {
        let started = Instant::now();
        let status = self.command.status().expect("the command starts");
        self.times.push(started.elapsed());
        assert!(status.success(), "{}: {status}", self.name);
    }

    fn percentile(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100].as_secs_f64() * 1_000.0
    }
}

fn main() {
    let given = env::args().skip(1).find_map(|word| word.parse().ok());
    let rounds: usize = given.unwrap_or(ROUNDS).max(1);
    let server = RedisServer::start();
    let url = server.url();
    let file = server.directory().join("flock");
    let file = file.to_str().expect("a plain path");
    let rlock = env!("CARGO_BIN_EXE_rlock");
    let run = ["run", "--url", &url, "-n", "-k", "overhead", "--", "true"];
    let mut contestants = [
        Contestant::new("true", "true", &[]),
        Contestant::new("flock -n FILE true", "flock", &["-n", file, "true"]),
        Contestant::new("rlock run -n -- true", rlock, &run),
    ];
    for _ in 0..rounds {
        contestants.iter_mut().for_each(Contestant::run);
    }
    println!("{rounds} rounds, milliseconds");
    println!("{:<22} {:>8} {:>8} {:>8}", "", "p50", "p95", "p99");
    for contestant in &contestants {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| contestant.percentile(percent));
        println!("{:<22} {p50:>8.2} {p95:>8.2} {p99:>8.2}", contestant.name);
    }
    let [_, flock, rlock] = &contestants;
    let more = rlock.percentile(50) - flock.percentile(50);
    println!("rlock takes {more:.2} ms more than flock at p50");
}
