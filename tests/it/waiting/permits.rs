//! Permits of several processes, some of which die, are cut off or are paused inside.

use std::{collections::VecDeque, time::Duration};

use rlock_core::LockClient;
use rlock_testkit::{Proxy, RedisServer, Worker, eventually, within};
use rlock_tests::histories::clock;

use crate::common::{LASTING, LONG, client, ms, wait_queue, worker};

const PERMITS: u32 = 3;
const PROCESSES: usize = 10;
const CALLS: usize = 100;
/// The calls that cannot release their permits. Two are inside at once, beside a third one that can.
const DOOMED: [usize; 6] = [20, 21, 51, 52, 82, 83];
/// The lease of a doomed call.
const BRIEF: Duration = ms(1_000);

/// Processes that call in turn: a call is in the queue before the next one begins.
struct Processes {
    server: RedisServer,
    /// The way of the processes that are cut off to the server.
    proxy: Proxy,
    workers: Vec<Worker>,
    calls: usize,
    waiting: VecDeque<usize>,
    /// The calls inside, and when they entered.
    inside: VecDeque<(usize, u64)>,
    /// From when until when each former holder could rely on its permit.
    held: Vec<(u64, u64)>,
}

impl Processes {
    async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let mut processes = Self {
            server,
            proxy,
            workers: Vec::new(),
            calls: 0,
            waiting: VecDeque::new(),
            inside: VecDeque::new(),
            held: Vec::new(),
        };
        for process in 0..PROCESSES {
            let worker = processes.process(process).await;
            processes.workers.push(worker);
        }
        processes
    }

    async fn process(&self, process: usize) -> Worker {
        let url = match way(process % PROCESSES) {
            Way::CutOff => self.proxy.url(),
            _ => self.server.url(),
        };
        let mut worker = worker(&["permits", &url, "k", &PERMITS.to_string()]);
        worker.expect_line(LONG, "ready").await;
        worker
    }

    fn of(&mut self, call: usize) -> &mut Worker {
        &mut self.workers[call % PROCESSES]
    }

    /// Begins the next call, if there is one. Returns once it is inside or in the queue.
    async fn call(&mut self) {
        let call = self.calls;
        if call == CALLS {
            return;
        }
        self.calls += 1;
        let before = wait_queue(&self.server, "k").await;
        let is_doomed = DOOMED.contains(&call);
        let lease = if is_doomed { BRIEF } else { LASTING };
        self.of(call).send(&lease.as_millis().to_string());
        self.waiting.push_back(call);
        if call < PERMITS as usize {
            return self.enters().await;
        }
        eventually(LONG, "the call is in the queue", async || {
            let queue = wait_queue(&self.server, "k").await;
            queue.iter().any(|owner| !before.contains(owner))
        })
        .await;
    }

    /// Waits until the first call of the queue has entered.
    async fn enters(&mut self) {
        let Some(call) = self.waiting.pop_front() else {
            return;
        };
        let line = self.of(call).line(LONG).await.expect("it runs");
        let at = line.strip_prefix("inside ").expect("it enters");
        self.inside.push_back((call, at.parse().expect("a time")));
    }

    /// Reads when the call entered, until when it could rely on its permit, and how it ended.
    async fn ends(&mut self, call: usize, how: &str) {
        let line = self.of(call).line(LONG).await.expect("it runs");
        let words: Vec<&str> = line.split(' ').collect();
        let [from, until, ended] = words[..] else {
            panic!("call {call}: {line}");
        };
        assert_eq!(ended, how, "call {call}");
        let time = |word: &str| word.parse().expect("a time");
        self.held.push((time(from), time(until)));
    }

    /// Lets the first call inside release its permit, which the first of the queue gets.
    async fn release(&mut self) {
        let (call, _) = self.inside.pop_front().expect("a call is inside");
        self.of(call).send("leave");
        self.ends(call, "released").await;
        self.enters().await;
        self.call().await;
    }

    /// Keeps the doomed calls inside from releasing their permits, which the first of the queue get when the leases end.
    async fn strike(&mut self, newcomer: &LockClient) {
        let inside = std::mem::take(&mut self.inside).into_iter();
        let (doomed, inside): (VecDeque<_>, _) =
            inside.partition(|(call, _)| DOOMED.contains(call));
        self.inside = inside;
        for (call, from) in &doomed {
            match way(call % PROCESSES) {
                Way::Killed => {
                    self.held.push((*from, clock::now()));
                    self.of(*call).kill();
                }
                Way::CutOff => self.proxy.black_hole(),
                Way::Paused => self.of(*call).pause(),
            }
        }
        let newcomer = newcomer.lock("k").permits(PERMITS);
        let overtakes = async {
            while newcomer.try_acquire().await.expect("a reply").is_none() {
                tokio::time::sleep(ms(20)).await;
            }
        };
        let enter = async {
            for _ in &doomed {
                self.enters().await;
            }
        };
        tokio::select! {
            () = overtakes => panic!("a newcomer gets a permit before the calls in the queue"),
            () = enter => {}
        }
        self.proxy.pass();
        for (call, _) in doomed {
            match way(call % PROCESSES) {
                Way::Killed => *self.of(call) = self.process(call).await,
                Way::CutOff => self.ends(call, "lost").await,
                Way::Paused => {
                    self.of(call).resume();
                    self.ends(call, "lost").await;
                }
            }
            self.call().await;
        }
    }

    /// Returns the largest number of holders that could rely on their permits at once.
    fn most_at_once(&self) -> usize {
        let at = |moment: u64| {
            let holds = self.held.iter();
            holds
                .filter(|(from, until)| (*from..*until).contains(&moment))
                .count()
        };
        let entries = self.held.iter().map(|(from, _)| at(*from));
        entries.max().unwrap_or(0)
    }
}

/// What keeps the doomed calls of a process from releasing their permits.
enum Way {
    Killed,
    CutOff,
    Paused,
}

fn way(process: usize) -> Way {
    match process {
        1 => Way::CutOff,
        2 => Way::Paused,
        _ => Way::Killed,
    }
}

#[tokio::test]
async fn permits_of_dead_unreachable_and_paused_processes_pass_on_in_order_when_their_leases_end() {
    let mut processes = Processes::start().await;
    let newcomer = client(&processes.server).await;
    for _ in 0..PROCESSES {
        processes.call().await;
    }
    while let Some((first, _)) = processes.inside.front() {
        if DOOMED.contains(first) {
            within(LONG, "the leases end", processes.strike(&newcomer)).await;
        } else {
            processes.release().await;
        }
    }
    assert_eq!(processes.held.len(), CALLS);
    assert_eq!(processes.most_at_once(), PERMITS as usize);
}
