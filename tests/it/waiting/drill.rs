//! Several processes campaign for one election, and an operator ends one term after the other: one leads at a time, and all agree.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::select_all;
use rlock_core::{Token, election::Election};
use rlock_testkit::{Proxy, RedisServer, Worker, eventually, within};
use rlock_tests::histories::clock;

use crate::common::{LONG, client, ms, worker};

const PROCESSES: usize = 5;
/// How long a leader that cannot resign blocks its successor.
pub(crate) const LEASE: Duration = ms(1000);

/// How the operator ends a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Killed,
    Asked,
    Paused,
    Panics,
    CutOff,
    Returns,
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Killed,
        Self::Asked,
        Self::Paused,
        Self::Panics,
        Self::CutOff,
        Self::Returns,
    ];

    /// Returns whether the leader resigns, so that its successor need not wait for the end of a lease.
    pub(crate) fn resigns(self) -> bool {
        matches!(self, Self::Asked | Self::Panics | Self::Returns)
    }
}

struct Process {
    worker: Worker,
    is_killed: bool,
    /// Its way to the server.
    proxy: Proxy,
    /// The latest term that it has observed.
    seen: u64,
}

/// A term, as its leader reports it.
struct Led {
    process: usize,
    from: u64,
    /// When its body ended, and how.
    ended: Option<(u64, String)>,
}

/// Processes that campaign again and again, and their operator, who ends one term after the other.
struct Drill {
    /// The first to be dropped.
    processes: Vec<Process>,
    server: RedisServer,
    witness: RedisServer,
    operator: Election,
    terms: BTreeMap<u64, Led>,
    struck: Option<usize>,
    takeovers: BTreeMap<Way, Vec<Duration>>,
}

impl Drill {
    async fn start() -> Self {
        let (server, witness) = (RedisServer::start(), RedisServer::start());
        let operator = client(&server).await.election("scheduler");
        let mut drill = Self {
            server,
            witness,
            operator,
            processes: Vec::new(),
            terms: BTreeMap::new(),
            struck: None,
            takeovers: BTreeMap::new(),
        };
        for _ in 0..PROCESSES {
            let proxy = Proxy::in_front_of(&drill.server);
            let worker = drill.process(&proxy).await;
            drill.processes.push(Process {
                worker,
                is_killed: false,
                proxy,
                seen: 0,
            });
        }
        drill
            .until("there is a leader", |drill| !drill.terms.is_empty())
            .await;
        drill
    }

    async fn process(&self, proxy: &Proxy) -> Worker {
        let (url, witness) = (proxy.url(), self.witness.url());
        let lease = LEASE.as_millis().to_string();
        let mut worker = worker(&["elect", &url, &witness, "scheduler", &lease]);
        worker.expect_line(LONG, "ready").await;
        worker
    }

    /// Reads the next line of any process.
    async fn step(&mut self) {
        let running = self.processes.iter_mut().enumerate();
        let running = running.filter(|(_, process)| !process.is_killed);
        let lines = running
            .map(|(n, process)| Box::pin(async move { (n, process.worker.line(LONG).await) }));
        let ((process, line), ..) = select_all(lines).await;
        self.on(process, &line.expect("the process runs"));
    }

    fn on(&mut self, process: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "leads" => {
                let led = Led {
                    process,
                    from: number(2),
                    ended: None,
                };
                assert!(self.terms.insert(number(1), led).is_none(), "{line}");
            }
            "ends" => {
                let led = self.terms.get_mut(&number(1)).expect("it began");
                assert_eq!(led.process, process);
                led.ended = Some((number(2), words[3].to_owned()));
            }
            "sees" => {
                let seen = &mut self.processes[process].seen;
                assert!(*seen < number(1), "{line} after {seen}");
                *seen = number(1);
            }
            _ => panic!("process {process}: {line}"),
        }
    }

    async fn until(&mut self, what: &str, is_met: impl Fn(&Self) -> bool) {
        let met = async {
            while !is_met(self) {
                self.step().await;
            }
        };
        within(LONG, what, met).await;
    }

    fn latest(&self) -> (u64, usize) {
        let (term, led) = self.terms.last_key_value().expect("there was a leader");
        (*term, led.process)
    }

    /// Waits until all processes that are not struck have observed the latest term.
    async fn all_see(&mut self) {
        self.until("the processes observe the leader", |drill| {
            let (term, _) = drill.latest();
            let mut processes = drill.processes.iter().enumerate();
            processes.all(|(n, process)| drill.struck == Some(n) || process.seen >= term)
        })
        .await;
    }

    /// Ends the present term, and returns when all processes have observed a later one.
    async fn strike(&mut self, way: Way, is_silent: bool) {
        let (term, leader) = self.latest();
        let at = clock::now();
        let process = &mut self.processes[leader];
        match way {
            Way::Killed => {
                self.struck = Some(leader);
                process.worker.kill();
                process.is_killed = true;
                for line in process.worker.remaining_lines(LONG).await {
                    self.on(leader, &line);
                }
                let led = self.terms.get_mut(&term).expect("it began");
                led.ended.get_or_insert_with(|| (at, "killed".to_owned()));
            }
            Way::Paused => {
                self.struck = Some(leader);
                process.worker.pause();
            }
            Way::CutOff => {
                self.struck = Some(leader);
                if is_silent {
                    process.proxy.black_hole();
                } else {
                    process.proxy.cut_off();
                }
            }
            Way::Asked => {
                let operator = self.operator.clone();
                // On a busy machine a leader may reply late.
                eventually(LONG, "the leader is asked", async || {
                    operator.request_release().await.expect("a reply")
                })
                .await;
            }
            Way::Returns => process.worker.send(&format!("return {term}")),
            Way::Panics => process.worker.send(&format!("panic {term}")),
        }
        self.until("another term begins", |drill| drill.latest().0 > term)
            .await;
        self.all_see().await;
        let process = &mut self.processes[leader];
        match way {
            Way::Killed => {
                let proxy = Proxy::in_front_of(&self.server);
                self.processes[leader] = Process {
                    worker: self.process(&proxy).await,
                    is_killed: false,
                    proxy,
                    seen: 0,
                };
            }
            Way::Paused => process.worker.resume(),
            Way::CutOff => process.proxy.pass(),
            Way::Asked | Way::Returns | Way::Panics => {}
        }
        if self.struck.is_some() {
            self.until("it observes the present leader", |drill| {
                drill.processes[leader].seen >= drill.latest().0
            })
            .await;
            self.struck = None;
        }
        self.until("the former term has ended", |drill| {
            drill.terms[&term].ended.is_some()
        })
        .await;
        self.note_takeover(way, term, at);
    }

    /// Records how long there was no leader, unless the term had ended before.
    fn note_takeover(&mut self, way: Way, term: u64, at: u64) {
        let (ended, how) = self.terms[&term].ended.as_ref().expect("it has ended");
        let is_meant = match way {
            Way::Killed => how == "killed",
            Way::Paused | Way::CutOff => how == "lost",
            Way::Asked => how == "asked",
            Way::Returns => how == "returns",
            Way::Panics => how == "panics",
        };
        let from = if way.resigns() { *ended } else { at };
        let next = self.terms.range(term + 1..).next();
        let (_, next) = next.expect("another term has begun");
        if is_meant && next.from >= at {
            let took = Duration::from_nanos(next.from.saturating_sub(from));
            self.takeovers.entry(way).or_default().push(took);
        }
    }

    /// Asserts that the terms grow, and that no two leaders could rely on their terms at once.
    async fn assert_one_leads_at_a_time(&self) {
        let relied: BTreeMap<u64, u64> = self.witness.command(&["HGETALL", "relied"]).await;
        let mut former: Option<(u64, u64, u64)> = None;
        for (term, led) in &self.terms {
            // A leader that was killed or paused relied on its term until its lease ended.
            let until = relied.get(term).copied().unwrap_or(led.from);
            let until = led.ended.as_ref().map_or(until, |(at, _)| until.min(*at));
            if let Some((former, began, relied)) = former {
                assert!(began < led.from, "{former} began before {term}");
                assert!(relied <= led.from, "{former} and {term} at once");
            }
            former = Some((*term, led.from, until));
        }
    }

    /// Waits until all know the latest term, which may have ended by itself, and until its leader wrote last.
    async fn all_agree(&mut self) {
        let agree = async {
            loop {
                let (last, _) = self.latest();
                let leader = self.operator.leader().await.expect("a reply");
                let term = leader.and_then(|leader| leader.term).map(Token::as_u64);
                assert!(
                    term.is_none_or(|term| term >= last),
                    "{term:?} after {last}"
                );
                let written: u64 = self.witness.command(&["GET", "term"]).await;
                let seen = self.processes.iter().map(|process| process.seen);
                let terms: Vec<u64> = seen.chain([term.unwrap_or(0), written]).collect();
                if terms.iter().all(|term| *term == last) {
                    return;
                }
                let _ = tokio::time::timeout(ms(100), self.step()).await;
            }
        };
        within(LONG, "all agree on the latest term", agree).await;
    }
}

/// Runs this many terms, each of which the operator ends. Returns how long there was no leader after each way to end one.
pub(crate) async fn drill(terms: usize) -> BTreeMap<Way, Vec<Duration>> {
    let mut drill = Drill::start().await;
    drill.all_see().await;
    for n in 0..terms {
        let way = Way::ALL[n % Way::ALL.len()];
        drill.strike(way, n % 2 == n / Way::ALL.len() % 2).await;
    }
    drill.all_agree().await;
    drill.assert_one_leads_at_a_time().await;
    assert!(drill.terms.len() > terms);
    drill.takeovers
}

#[tokio::test]
async fn one_process_leads_at_a_time_and_all_agree_however_a_term_ends() {
    assert!(!drill(24).await.is_empty());
}
