//! How equally the clients of a group share its elections, how long none of them leads one, and what that costs the server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::select_all;
use rlock_testkit::{RedisServer, Worker};
use rlock_tests::histories::clock;
use tokio::time::{Instant, timeout_at};

use crate::common::{LONG, ms, worker};

const ELECTIONS: usize = 64;
const LEASE: Duration = ms(3000);

/// The processes of a group, and which elections they lead.
struct Group {
    server: RedisServer,
    processes: BTreeMap<usize, Worker>,
    /// The process that leads each election, or since when none does.
    leaders: BTreeMap<String, Result<usize, u64>>,
    /// How long no process led an election, of those that changed hands.
    gaps: Vec<Duration>,
}

impl Group {
    fn join(&mut self, process: usize) {
        let (elections, lease) = (ELECTIONS.to_string(), LEASE.as_millis().to_string());
        let words = ["shards", &self.server.url(), &elections, &lease];
        self.processes.insert(process, worker(&words));
    }

    fn kill(&mut self, process: usize) {
        self.processes.remove(&process).expect("it runs").kill();
        let now = clock::now();
        for leader in self
            .leaders
            .values_mut()
            .filter(|leader| **leader == Ok(process))
        {
            *leader = Err(now);
        }
    }

    /// Follows the processes for this time.
    async fn follow(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let lines = self.processes.iter_mut().map(|(process, worker)| {
                Box::pin(async move { (*process, worker.line(LONG).await) })
            });
            let Ok(((process, line), ..)) = timeout_at(until, select_all(lines)).await else {
                return;
            };
            let line = line.expect("the process runs");
            let words: Vec<&str> = line.split(' ').collect();
            let at: u64 = words[2].parse().expect("a number");
            let leader = self.leaders.entry(words[1].to_owned()).or_insert(Err(at));
            match (words[0], *leader) {
                ("leads", Err(since)) => {
                    self.gaps
                        .push(Duration::from_nanos(at.saturating_sub(since)));
                    *leader = Ok(process);
                }
                // The lines of two processes may be read in another order.
                ("leads", Ok(_)) => *leader = Ok(process),
                ("ends", Ok(former)) if former == process => *leader = Err(at),
                ("ends", _) => {}
                _ => panic!("{line}"),
            }
        }
    }

    /// Prints how many elections each process leads. Returns the longest gap since the last call. Asserts that all are led, and that
    /// no share differs from the others by more than a quarter.
    fn shares(&mut self, what: &str) -> Duration {
        let led = |process: &usize| {
            let leaders = self.leaders.values();
            leaders.filter(|leader| **leader == Ok(*process)).count()
        };
        let shares: Vec<usize> = self.processes.keys().map(led).collect();
        let longest = self.gaps.drain(..).max().unwrap_or_default();
        println!("{what}: {shares:?}, no leader for at most {longest:?}");
        assert_eq!(shares.iter().sum::<usize>(), ELECTIONS, "{what}");
        for share in &shares {
            let times = share * shares.len();
            assert!(
                times.abs_diff(ELECTIONS) * 4 <= ELECTIONS,
                "{what}: {shares:?}"
            );
        }
        longest
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn sixty_four_elections_are_led_in_equal_shares_ten_seconds_after_a_client_joins_or_dies() {
    const SETTLED: Duration = ms(10_000);
    let mut group = Group {
        server: RedisServer::start(),
        processes: BTreeMap::new(),
        leaders: BTreeMap::new(),
        gaps: Vec::new(),
    };
    (0..3).for_each(|process| group.join(process));
    group.follow(SETTLED).await;
    group.shares("three processes");
    let mut watch = group.server.watch_commands().await;
    group.follow(SETTLED).await;
    let commands = watch.seen().await;
    let names: BTreeSet<&str> = commands.iter().map(|command| &*command.words[0]).collect();
    println!("{} requests in {SETTLED:?}: {names:?}", commands.len());
    assert!(commands.len() <= 150, "{}", commands.len());
    assert!(group.gaps.is_empty(), "no election changes hands");
    group.join(3);
    group.follow(SETTLED).await;
    let longest = group.shares("one has joined");
    assert!(longest <= ms(500), "{longest:?}");
    group.kill(0);
    group.follow(SETTLED).await;
    let longest = group.shares("one was killed");
    assert!(longest <= LEASE + ms(2000), "{longest:?}");
}
