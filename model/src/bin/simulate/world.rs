//! Runs one simulation: orders all events in virtual time, and carries out what each causes.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use fastrand::Rng;
use uuid::Uuid;

use crate::{
    clients::{Client, Clock, Doing, Life, Sent, Task},
    key::Key,
    known::{Counts, Lock, Seen, Violation},
    machine::{CallId, Input, Machine, Output, Settings, Step},
    notes::Notes,
    plan::{Part, Plan, WorldKind},
    servers::{RETENTION, Server},
    store::TOKENS,
    wait::Spread,
};

pub(crate) const MS: u64 = 1_000_000;
/// When a run begins.
const START: u64 = 1_000_000 * MS;
/// The longest time of a run, and how long it goes on without faults and new calls, so that everything ends.
const LONGEST: u64 = 100_000_000 * MS;
const EPILOGUE: u64 = 1_000_000 * MS;
/// The longest step of a server's clock, ahead of the true time or behind it.
pub(crate) const CLOCK_STEP: u64 = 120_000 * MS;
/// The shortest time between two looks at calls that wait.
const AUDIT: u64 = 500 * MS;
/// What a trace leaves out: parts of keys, of options, and of the identities of clients.
const NOISE: [&str; 4] = [
    "Key { text: ",
    ", is_hidden: false }",
    ", site: Site { name: \"\", local: None }",
    "00000000-0000-0000-0000-0000000000",
];
/// The number of lines that a trace keeps.
const MOST_LINES: usize = 100_000;

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A client in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) client: usize,
    pub(crate) life: u32,
}

/// Where something happens. A paused client or server does it later; a client that is gone does not do it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    World,
    Client(Who),
    Server(usize),
}

type Happening = (Place, Box<dyn FnOnce(&mut World)>);

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    number: u64,
    happenings: BTreeMap<(u64, u64), Happening>,
    next_audit: u64,
    /// How often calls were polled since this time, within a millisecond.
    pub(crate) polls_since: (u64, u64),
    pub(crate) clients: Vec<Client>,
    pub(crate) servers: Vec<Server>,
    /// The former master, until it is demoted; the time of the last failover; the number of failovers.
    pub(crate) former: Option<Server>,
    pub(crate) failed_over: u64,
    pub(crate) failovers: u64,
    pub(crate) keys: Vec<Key>,
    pub(crate) locks: BTreeMap<Key, Lock>,
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: Counts,
    pub(crate) seen: Seen,
    pub(crate) inputs: u64,
    /// How often each part of the plan occurred.
    pub(crate) faults: Vec<u64>,
    /// Whether faults and new calls have ended.
    pub(crate) is_over: bool,
    digest: DefaultHasher,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, is_traced: bool) -> Self {
        // The product draws the pauses of a quorum's waiters from this.
        fastrand::seed(seed);
        let servers = if plan.world == WorldKind::Quorum {
            5
        } else {
            1
        };
        let keys = 0..plan.size(Part::Keys);
        let keys: Vec<Key> = keys
            .map(|n| Key::parse(&format!("k{n}")).expect("valid"))
            .collect();
        let mut world = Self {
            rng: Rng::with_seed(seed),
            now: START,
            number: 0,
            happenings: BTreeMap::new(),
            next_audit: START + AUDIT,
            polls_since: (0, START),
            clients: Vec::new(),
            former: None,
            failed_over: 0,
            failovers: 0,
            servers: (0..servers).map(|_| Server::new(servers > 1)).collect(),
            locks: keys
                .iter()
                .map(|key| (key.clone(), Lock::default()))
                .collect(),
            keys,
            violation: None,
            counts: Counts::default(),
            seen: Seen::default(),
            inputs: 0,
            faults: vec![0; Part::ALL.len()],
            is_over: false,
            digest: DefaultHasher::new(),
            trace: is_traced.then(Vec::new),
            plan,
        };
        for client in 0..world.plan.size(Part::Clients) {
            let state = world.new_client(client, 0);
            world.clients.push(state);
            world.starts(client);
        }
        for fault in Part::faults() {
            world.plan_fault(fault);
        }
        world
    }

    pub(crate) fn new_client(&mut self, client: usize, life: u32) -> Client {
        let id = Uuid::from_u128(client as u128 + 1 + (u128::from(life) << 64));
        self.servers.iter_mut().for_each(|server| server.joins(id));
        let settings = Settings {
            response_timeout: Duration::from_secs(2),
            local_handovers: self.plan.size(Part::LocalHandovers),
            counts_entries: self.plan.has(Part::CountsEntries),
            replicas: self.plan.has(Part::Replicas),
            needs_majority: self.servers.len() > 1,
            fence_retention: RETENTION,
            tokens: TOKENS,
        };
        let drift = match self.rng.u8(..4) {
            0 if self.plan.has(Part::ClockBeyondTheMargin) => self.rng.i32(-40_000..=40_000),
            _ if self.plan.has(Part::ClocksDrift) => self.rng.i32(-4_000..=4_000),
            _ => 0,
        };
        let machine = Machine::new(settings, Spread(self.rng.u64(..) | 1));
        let tasks = self.plan.size(Part::Tasks);
        Client {
            id,
            life_number: life,
            machine,
            clock: Clock {
                born: self.now,
                start: self.rng.u64(1..START),
                drift,
            },
            life: Life::Open,
            paused_until: 0,
            tasks: std::iter::repeat_with(Task::default).take(tasks).collect(),
            calls: BTreeMap::new(),
            unpolled: BTreeSet::new(),
            awaited: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            floor: 0,
            arrivals: BTreeMap::new(),
            owners: BTreeMap::new(),
            due: u64::MAX,
            at_former: false,
            deaf_until: 0,
            drained: u64::MAX,
            notes: Notes::default(),
        }
    }

    /// Makes the tasks of a new client begin.
    pub(crate) fn starts(&mut self, client: usize) {
        for task in 0..self.plan.size(Part::Tasks) {
            let after = self.rng.u64(..50 * MS);
            self.goes_on(client, task, after);
        }
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == MOST_LINES {
                trace.drain(..MOST_LINES / 2);
            }
            let micros = (self.now - START) / 1_000;
            let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
            let what = NOISE
                .iter()
                .fold(what(), |what, noise| what.replace(noise, ""));
            trace.push(format!("{seconds:>5}.{micros:06} s  {what}"));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Makes something happen after this time.
    pub(crate) fn later(
        &mut self,
        place: Place,
        after: u64,
        what: impl FnOnce(&mut Self) + 'static,
    ) {
        let at = (self.now.saturating_add(after), self.number());
        self.happenings.insert(at, (place, Box::new(what)));
    }

    /// Makes something happen at a client after this time.
    pub(crate) fn at_client(
        &mut self,
        client: usize,
        after: u64,
        what: impl FnOnce(&mut Self) + 'static,
    ) {
        self.later(Place::Client(self.who(client)), after, what);
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn who(&self, client: usize) -> Who {
        Who {
            client,
            life: self.clients[client].life_number,
        }
    }

    /// Draws whether a fault of a message or a call occurs.
    pub(crate) fn occurs(&mut self, fault: Part) -> bool {
        let occurs =
            !self.is_over && self.plan.has(fault) && self.rng.u32(..10_000) < self.plan[fault];
        self.faults[fault as usize] += u64::from(occurs);
        occurs
    }

    /// Makes a task go on after this time.
    pub(crate) fn goes_on(&mut self, client: usize, task: usize, after: u64) {
        let ticket = self.number();
        let state = &mut self.clients[client].tasks[task];
        (state.ticket, state.is_planned) = (ticket, true);
        self.at_client(client, after, move |world| {
            let state = &mut world.clients[client].tasks[task];
            if state.ticket == ticket {
                state.is_planned = false;
                world.task(client, task);
            }
        });
    }

    /// Gives a client an input, and does what follows. `call`: the call that the input is about. Returns the step of an
    /// input that is about none.
    pub(crate) fn on(&mut self, client: usize, input: Input, call: Option<CallId>) -> Option<Step> {
        self.inputs += 1;
        let time = self.clients[client].clock.time(self.now);
        (client, time, &input).hash(&mut self.digest);
        let timer = self.clients[client].machine.next_timer();
        let timer = timer.filter(|_| input == Input::Time);
        self.note(|| match timer {
            Some((_, timer)) => format!("client {client} <- {input:?}, for {timer:?}"),
            None => format!("client {client} <- {input:?}"),
        });
        let about = self.before(client, &input, time);
        let outputs: Vec<_> = self.clients[client].machine.on(input, time).collect();
        self.after(client, &about, time);
        let mut step = None;
        for output in outputs {
            output.hash(&mut self.digest);
            self.note(|| format!("client {client}   -> {output:?}"));
            self.tells(client, &about, &output);
            match output {
                Output::Step(of_none) if call.is_none() => step = Some(of_none),
                output => self.follow(client, output, call),
            }
        }
        let state = &mut self.clients[client];
        if let Some(due) = state.machine.due() {
            let at = state.clock.at(due).max(self.now);
            if at < state.due {
                state.due = at;
                self.looks_at_schedule(client, at);
            }
        }
        step
    }

    /// Makes the background of a client look at its schedule. With slow executors, it is often late.
    fn looks_at_schedule(&mut self, client: usize, at: u64) {
        let is_slow = self.plan.has(Part::ExecutorSlow) && !self.is_over;
        let is_late = is_slow && self.rng.u8(..8) == 0;
        let late = self.rng.u64(..if is_late { 300 * MS } else { 1 });
        self.at_client(client, at - self.now + late, move |world| {
            if world.clients[client].due <= world.now {
                world.clients[client].due = u64::MAX;
                world.on(client, Input::Time, None);
            }
        });
    }

    fn follow(&mut self, client: usize, output: Output, call: Option<CallId>) {
        match output {
            Output::Step(step) => {
                if let Some(call) = call {
                    self.step(client, call, step);
                }
            }
            Output::Wake(call) => {
                if let Some(task) = self.clients[client].calls.get(&call).copied()
                    && !self.clients[client].tasks[task].is_sending
                {
                    let slow = self.occurs(Part::ExecutorSlow);
                    let after = if slow {
                        self.rng.u64(..300 * MS)
                    } else if self.plan.has(Part::PolledAtOnce) {
                        1
                    } else {
                        self.rng.u64(..MS / 5)
                    };
                    self.goes_on(client, task, after);
                }
            }
            Output::Send(request) => self.sends(client, Sent::Request(request)),
            Output::Renew(renew) => self.sends(client, Sent::Renew(renew)),
            Output::Lost(_) | Output::Ended { .. } | Output::Revoked(_) | Output::GaveUp { .. } => {
            }
        }
    }

    /// Runs until this many inputs, and then until everything has ended.
    pub(crate) fn run(&mut self, inputs: u64) -> Result<(), Violation> {
        let (mut end, scale) = (u64::MAX, u64::from(self.plan.scale()));
        let every = AUDIT.max(u64::from(self.plan.longest_lease()) * MS / 6);
        while let Some(((at, number), (place, what))) = self.happenings.pop_first() {
            let until = match place {
                Place::World => 0,
                Place::Server(server) => self.servers[server].paused_until,
                Place::Client(who) if who != self.who(who.client) => continue,
                Place::Client(who) => self.clients[who.client].paused_until,
            };
            if until > at || at > self.next_audit {
                self.happenings
                    .insert((at.max(until), number), (place, what));
                if until <= at {
                    self.now = self.now.max(self.next_audit);
                    self.next_audit = self.now + every;
                    self.audit();
                }
            } else {
                self.now = self.now.max(at);
                if (self.inputs >= inputs || self.now > START + LONGEST * scale) && !self.is_over {
                    self.ends();
                    end = self.now + EPILOGUE * scale;
                }
                what(self);
            }
            if self.violation.is_some() || self.now > end {
                break;
            }
        }
        if self.violation.is_none() {
            self.look_at_the_end();
        }
        self.violation.take().map_or(Ok(()), Err)
    }

    /// Ends all faults and new calls.
    fn ends(&mut self) {
        self.is_over = true;
        self.note(|| "faults and new calls end".to_owned());
        for client in 0..self.clients.len() {
            let (who, now) = (self.who(client), self.now);
            self.clients[client].paused_until = now;
            // A client that was paused would learn of a failover when its pause was to end.
            self.leaves_former(client);
            for call in self.clients[client].unpolled.clone() {
                self.later(Place::Client(who), 1_000 * MS, move |world| {
                    world.drops(client, call);
                });
            }
            for task in 0..self.clients[client].tasks.len() {
                if self.clients[client].tasks[task].doing == Doing::Ready {
                    self.goes_on(client, task, MS);
                }
            }
        }
    }

    /// Returns a number that two runs share only if their inputs and outputs are the same.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}
