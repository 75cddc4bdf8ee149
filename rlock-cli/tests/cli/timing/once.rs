//! `rlock once` on hosts whose clocks are up to two seconds apart.

use std::{
    fs,
    path::Path,
    process::Command,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rlock_testkit::{RedisServer, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    task::{JoinSet, LocalSet},
    time::sleep,
};

use crate::common::{LONG, Running, Scratch, rlock};

/// How far the clocks of the hosts are ahead, in milliseconds. The first one to start has the fastest clock.
const CLOCKS: [u64; 5] = [2000, 1500, 1000, 500, 0];
const WINDOW: u64 = 5000;
/// Jobs that run at the same time, and the ticks of each.
const JOBS: u64 = 20;
const TICKS: u64 = 25;
/// The ticks of each job whose runner is killed. Odd jobs run with `--retry`.
const KILLED: u64 = 5;

/// Lets a command see a clock that is so far ahead, by Debian's package `faketime`.
fn with_clock(command: &mut Command, ahead: u64) {
    let directories = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let library = directories.map(|name| format!("/usr/lib/{name}/faketime/libfaketime.so.1"));
    let library = library.iter().find(|path| Path::new(path).exists());
    command
        .env("LD_PRELOAD", library.expect("install `faketime`"))
        .env("DONT_FAKE_MONOTONIC", "1")
        .env(
            "FAKETIME",
            format!("+{}", Duration::from_millis(ahead).as_secs_f64()),
        );
}

/// Returns the milliseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.expect("a clock after 1970").as_millis()).expect("a clock before 9999")
}

async fn sleep_until(time: u64) {
    sleep(Duration::from_millis(time.saturating_sub(now()))).await;
}

/// Starts the hosts when their clocks show this time: each scheduler goes by the clock of its host.
async fn start_hosts(server: &RedisServer, words: &[&str], time: u64) -> Vec<Running> {
    let mut hosts = Vec::new();
    for ahead in CLOCKS {
        hosts.push(start_host(server, words, ahead, time).await);
    }
    hosts
}

async fn start_host(server: &RedisServer, words: &[&str], ahead: u64, time: u64) -> Running {
    let mut command = rlock(&server, words);
    with_clock(&mut command, ahead);
    sleep_until(time - ahead).await;
    Running::start(command)
}

/// A tick of a job, and what the hosts do with it.
struct Tick {
    job: u64,
    is_killed: bool,
    /// How often the command was started, and how often it was completed.
    started: usize,
    completed: usize,
}

impl Tick {
    fn retries(&self) -> bool {
        !self.job.is_multiple_of(2)
    }

    /// Lets the hosts run the tick at their times, and once more at the end of its window.
    async fn play(mut self, server: &RedisServer) -> Self {
        let file = Scratch::new("runs");
        let path = file.path().display();
        // The first command of a tick that is killed waits for that.
        let hangs = if self.is_killed { "1" } else { "0" };
        let script = format!(
            "echo started $PPID $$ >>{path}; test $(wc -l <{path}) = {hangs} && exec sleep 60; echo completed >>{path}"
        );
        let time = (now() / 1000 + 4) * 1000;
        let (name, tick) = (format!("job-{}", self.job), format!("@{}", time / 1000));
        let window = format!("{WINDOW}ms");
        let mut words = vec![
            "once", &name, "--tick", &tick, "--window", &window, "--lease", "1s",
        ];
        if self.retries() {
            words.push("--retry");
        }
        words.extend(["--", "sh", "-c", &script]);
        let mut hosts = start_hosts(server, &words, time).await;
        let lines = || fs::read_to_string(file.path()).unwrap_or_default();
        if self.is_killed {
            eventually(LONG, "a command starts", async || lines().ends_with('\n')).await;
            kill(&lines());
        }
        // The slowest clock calls last.
        let [.., slowest] = CLOCKS;
        hosts.push(start_host(server, &words, slowest, time + WINDOW - 300).await);
        for host in hosts {
            host.end().await;
        }
        let count = |word| {
            lines()
                .lines()
                .filter(|line| line.starts_with(word))
                .count()
        };
        (self.started, self.completed) = (count("started"), count("completed"));
        self
    }
}

/// Plays the ticks of a job, one after the other.
async fn play(job: u64, server: Rc<RedisServer>) -> Vec<Tick> {
    // The jobs do not start all at once.
    sleep(Duration::from_millis(job * 400)).await;
    let mut ticks = Vec::new();
    for number in 0..TICKS {
        let tick = Tick {
            job,
            is_killed: number < KILLED,
            started: 0,
            completed: 0,
        };
        ticks.push(tick.play(&server).await);
    }
    ticks
}

/// Kills `rlock` and its command.
fn kill(line: &str) {
    let pids = line.split_whitespace().skip(1).map(|pid| pid.parse().ok());
    for pid in pids.map(|pid| pid.and_then(Pid::from_raw)) {
        // The command may have ended with its `rlock`.
        let _ = kill_process(pid.expect("a process id"), Signal::KILL);
    }
}

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn no_tick_is_completed_twice_by_hosts_whose_clocks_differ() {
    for ahead in CLOCKS {
        let mut date = Command::new("date");
        with_clock(&mut date, ahead);
        let shown = date.arg("+%s%3N").output().expect("it runs").stdout;
        let shown = String::from_utf8_lossy(&shown).trim().parse::<u64>();
        let differs = shown.expect("a number").abs_diff(now() + ahead);
        assert!(differs < 250, "the clock is wrong by {differs} ms");
    }
    let server = Rc::new(RedisServer::start());
    let mut jobs = JoinSet::new();
    let local = LocalSet::new();
    for job in 0..JOBS {
        jobs.spawn_local_on(play(job, Rc::clone(&server)), &local);
    }
    let ticks = local.run_until(jobs.join_all()).await;
    let ticks: Vec<Tick> = ticks.into_iter().flatten().collect();
    for (is_killed, retries, started, completed) in [
        (false, false, 1, 1),
        (false, true, 1, 1),
        (true, false, 1, 0),
        (true, true, 2, 1),
    ] {
        let of_kind = |tick: &&Tick| (tick.is_killed, tick.retries()) == (is_killed, retries);
        let of_kind: Vec<&Tick> = ticks.iter().filter(of_kind).collect();
        let counts: Vec<_> = of_kind
            .iter()
            .map(|tick| (tick.started, tick.completed))
            .collect();
        let expected = counts
            .iter()
            .filter(|count| **count == (started, completed))
            .count();
        eprintln!(
            "killed: {is_killed}, --retry: {retries}: {} ticks, {expected} of them started {started} and completed {completed}",
            counts.len()
        );
        assert_eq!(expected, counts.len(), "{counts:?}");
    }
}

/// The control: a lock that is free as soon as a quick command has ended lets several of these hosts run it.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_lock_alone_lets_hosts_whose_clocks_differ_run_a_quick_job_twice() {
    let server = RedisServer::start();
    let words = ["run", "-n", "-E", "0", "-k", "a", "--", "echo", "ran"];
    let time = (now() / 1000 + 4) * 1000;
    let mut ran = 0;
    for host in start_hosts(&server, &words, time).await {
        ran += host.end().await.output.len();
    }
    assert!(ran > 1, "{ran}");
}
