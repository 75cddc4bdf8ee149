//! One run: what happens when, and what follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    rc::Rc,
    time::Duration,
};

use fastrand::Rng;
use uuid::Uuid;

use crate::{
    clients::{Client, Clock, Doing, Life, Sent, Task, Vote},
    engine::machine::{CallId, Input, Machine, Output, Phase, Settings},
    judge::{self, Hold, Judge, LONGEST_IDLE, Rule, SHORTEST_IDLE, Violation},
    key::Key,
    notes::{self, Notes},
    plan::{Fault, Plan, World as Kind},
    seen::Seen,
    servers::{Body, Server},
    wait::Spread,
    words,
};

pub(crate) const MS: u64 = 1_000_000;
/// When a run begins.
const START: u64 = 1_000_000 * MS;
/// The longest time of a run.
const LONGEST: u64 = START + 100_000_000 * MS;
/// How long a run goes on without faults and new calls, so that everything ends.
const EPILOGUE: u64 = 1_000_000 * MS;
/// The most by which the clock of a server is set back, from ahead of the true time to behind it.
const CLOCK_STEPS: u64 = 10_000 * MS;
/// How often waiting calls and counts are looked at.
const AUDIT: u64 = 500 * MS;
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

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A task goes on, if this is its latest plan.
    Task(Who, usize, u64),
    /// A request arrives at a server. `None`: no reply is awaited.
    Arrives(usize, Who, Option<u64>, Rc<Body>),
    /// A reply of a server arrives, or the way to it fails.
    Replied(Who, u64, usize, Vote),
    /// The replies so far decide about a request to several servers.
    Decide(Who, u64),
    /// The outcome of a request is known.
    Outcome(Who, u64, Vote),
    /// No reply came in time.
    TimeOut(Who, u64),
    /// A notification or a message of an operator arrives.
    Event(Who, Input),
    /// The background looks at the schedule.
    Due(Who),
    /// The future of a call is dropped.
    Dropped(Who, CallId),
    /// A write arrives at the resource of a key.
    Write(Hold, Key),
    /// The next step of a client that shuts down.
    Closes(Who, Life),
    /// The servers learn that a client is gone.
    Gone(Uuid),
    /// An older copy takes over from a server.
    GoesBack(usize),
    /// A fault strikes, and plans its next time.
    Strikes(Fault),
    Audit,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    number: u64,
    happenings: BTreeMap<(u64, u64), Box<Happening>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) servers: Vec<Server>,
    pub(crate) keys: Vec<Key>,
    pub(crate) judge: Judge,
    pub(crate) seen: Seen,
    pub(crate) inputs: u64,
    pub(crate) faults: Vec<u64>,
    /// Whether faults and new calls have ended.
    pub(crate) is_over: bool,
    digest: DefaultHasher,
    outputs: Vec<Output>,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, is_traced: bool) -> Self {
        // The product draws the pauses of a quorum's waiters from this.
        fastrand::seed(seed);
        let rng = Rng::with_seed(seed);
        let servers = if plan.world == Kind::Quorum { 5 } else { 1 };
        let keys = (0..plan.keys).map(|n| Key::parse(&format!("k{n}")).expect("valid"));
        let mut world = Self {
            rng,
            now: START,
            number: 0,
            happenings: BTreeMap::new(),
            clients: Vec::new(),
            servers: (0..servers).map(|_| Server::new(servers > 1)).collect(),
            keys: keys.collect(),
            judge: Judge::default(),
            seen: Seen::default(),
            inputs: 0,
            faults: vec![0; Fault::ALL.len()],
            is_over: false,
            digest: DefaultHasher::new(),
            outputs: Vec::new(),
            trace: is_traced.then(Vec::new),
            plan,
        };
        for client in 0..world.plan.clients {
            let client = world.new_client(client, 0);
            world.clients.push(client);
        }
        for client in 0..world.plan.clients {
            world.starts(client);
        }
        for fault in Fault::ALL {
            world.plan_fault(*fault);
        }
        world.later(AUDIT, Happening::Audit);
        world
    }

    fn new_client(&mut self, client: usize, life: u32) -> Client {
        let number = client as u128 + 1 + (u128::from(life) << 64);
        let id = Uuid::from_u128(number);
        for server in &mut self.servers {
            server.joins(id);
        }
        let settings = Settings {
            response_timeout: Duration::from_secs(2),
            local_handovers: self.plan.local_handovers,
            counts_entries: self.plan.counts_entries,
            replicas: self.plan.replicas,
            needs_majority: self.servers.len() > 1,
        };
        let drift = match self.rng.u8(..4) {
            0 if self.plan.has(Fault::Beyond) => self.rng.i32(-40_000..=40_000),
            _ if self.plan.has(Fault::Drift) => self.rng.i32(-4_000..=4_000),
            _ => 0,
        };
        Client {
            id,
            life_number: life,
            machine: Machine::new(settings, Spread(self.rng.u64(..) | 1)),
            clock: Clock {
                born: self.now,
                start: self.rng.u64(1..START),
                drift,
            },
            life: Life::Open,
            paused_until: 0,
            tasks: (0..self.plan.tasks).map(|_| Task::new()).collect(),
            calls: BTreeMap::new(),
            unpolled: BTreeSet::new(),
            awaited: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            owners: BTreeMap::new(),
            due: u64::MAX,
            deaf_until: 0,
            drained: u64::MAX,
            notes: Notes::default(),
        }
    }

    fn starts(&mut self, client: usize) {
        for task in 0..self.plan.tasks {
            let after = self.rng.u64(..50 * MS);
            self.goes_on(client, task, after);
        }
    }

    /// Puts a new client in the place of one that is gone.
    pub(crate) fn replaces(&mut self, client: usize) {
        let life = self.clients[client].life_number + 1;
        self.clients[client] = self.new_client(client, life);
        self.starts(client);
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == MOST_LINES {
                trace.drain(..MOST_LINES / 2);
            }
            let micros = (self.now - START) / 1_000;
            trace.push(format!(
                "{:>5}.{:06} s  {}",
                micros / 1_000_000,
                micros % 1_000_000,
                what()
            ));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(crate) fn later(&mut self, after: u64, what: Happening) {
        self.number += 1;
        let at = (self.now.saturating_add(after), self.number);
        self.happenings.insert(at, Box::new(what));
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

    /// Returns the client, if it lives.
    pub(crate) fn living(&self, who: Who) -> Option<&Client> {
        let client = &self.clients[who.client];
        (client.life_number == who.life && client.life < Life::Ended).then_some(client)
    }

    /// Draws whether a fault of a message or a poll occurs.
    pub(crate) fn occurs(&mut self, fault: Fault) -> bool {
        let rate = if self.is_over {
            0
        } else {
            self.plan.rate(fault)
        };
        let occurs = rate > 0 && self.rng.u32(..10_000) < rate;
        self.faults[fault as usize] += u64::from(occurs);
        occurs
    }

    /// Returns whether a hold still relies on its lock.
    pub(crate) fn relies(&self, key: &Key, hold: &Hold) -> bool {
        relies(&self.clients, self.now, key, hold)
    }

    /// Makes a task go on after this time.
    pub(crate) fn goes_on(&mut self, client: usize, task: usize, after: u64) {
        let (who, ticket) = (self.who(client), self.number());
        self.clients[client].tasks[task].ticket = ticket;
        self.later(after, Happening::Task(who, task, ticket));
    }

    /// Gives a client an input, and does what follows. `call`: the call that the input is about.
    pub(crate) fn on(&mut self, client: usize, input: Input, call: Option<CallId>) {
        self.inputs += 1;
        let now = self.clients[client].clock.time(self.now);
        (client, now, &input).hash(&mut self.digest);
        let owner = notes::owner_of(&input);
        let state = &mut self.clients[client];
        state.notes.told(&input, &state.machine, now);
        if self.trace.is_some() {
            let line = words::input(client, &input);
            self.note(|| line);
        }
        self.seen.before(&self.clients[client].machine, &input);
        let mut outputs = std::mem::take(&mut self.outputs);
        self.clients[client].machine.on(input, now, &mut outputs);
        self.seen.after(&self.clients[client].machine);
        for output in outputs.drain(..) {
            output.hash(&mut self.digest);
            if self.trace.is_some()
                && let Some(line) = words::output(client, &output)
            {
                self.note(|| line);
            }
            self.tells(client, owner, &output);
            self.follow(client, output, call);
        }
        self.outputs = outputs;
        let state = &mut self.clients[client];
        if let Some(due) = state.machine.due() {
            let at = state.clock.at(due).max(self.now);
            if at < state.due {
                state.due = at;
                let who = self.who(client);
                self.later(at - self.now, Happening::Due(who));
            }
        }
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
                    let slow = self.occurs(Fault::Slow);
                    let after = self.rng.u64(..if slow { 300 * MS } else { MS / 5 });
                    self.goes_on(client, task, after);
                }
            }
            Output::Send(request) => self.sends(client, Sent::Request(request), None),
            Output::Renew(renew) => {
                self.sends(client, Sent::Renew(*renew), None);
            }
            Output::Lost(loss) => self.lost(client, &loss),
            Output::Ended { .. } | Output::Revoked(_) => {}
            Output::GaveUp(key, _) => self.judge.moves(&key, self.now),
        }
    }

    /// Runs until this many inputs, and then until everything has ended.
    pub(crate) fn run(&mut self, inputs: u64) -> Result<(), Violation> {
        let mut end = u64::MAX;
        while let Some(((at, number), what)) = self.happenings.pop_first() {
            if let Some(until) = self.deferred(&what).filter(|until| *until > at) {
                self.happenings.insert((until, number), what);
                continue;
            }
            self.now = self.now.max(at);
            if (self.inputs >= inputs || self.now > LONGEST) && !self.is_over {
                self.ends();
                end = self.now + EPILOGUE;
            }
            let is_audit = matches!(*what, Happening::Audit);
            if self.now > end || self.is_over && is_audit && self.has_ended() {
                break;
            }
            self.happen(*what);
            if let Some(violation) = self.judge.violation.take() {
                return Err(violation);
            }
        }
        self.look_at_the_end();
        self.judge.violation.take().map_or(Ok(()), Err)
    }

    /// Returns until when a paused client or server does not notice what happens.
    fn deferred(&self, what: &Happening) -> Option<u64> {
        match what {
            Happening::Task(who, ..)
            | Happening::Replied(who, ..)
            | Happening::Decide(who, _)
            | Happening::Outcome(who, ..)
            | Happening::TimeOut(who, _)
            | Happening::Event(who, _)
            | Happening::Due(who)
            | Happening::Closes(who, _)
            | Happening::Dropped(who, _) => Some(self.living(*who)?.paused_until),
            Happening::Arrives(server, ..) => Some(self.servers[*server].paused_until),
            Happening::Write(..)
            | Happening::GoesBack(_)
            | Happening::Gone(_)
            | Happening::Strikes(_)
            | Happening::Audit => None,
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Task(who, task, ticket) => {
                let is_it = |client: &Client| client.tasks[task].ticket == ticket;
                self.living(who)
                    .is_some_and(is_it)
                    .then(|| self.task(who.client, task));
            }
            Happening::Arrives(server, who, id, body) => self.arrives(server, who, id, &body),
            Happening::Replied(who, id, server, vote) if self.living(who).is_some() => {
                self.voted(who.client, id, server, vote);
            }
            Happening::Decide(who, id) if self.living(who).is_some() => {
                self.decide(who.client, id);
            }
            Happening::Outcome(who, id, outcome) if self.living(who).is_some() => {
                self.replied(who.client, id, outcome);
            }
            Happening::TimeOut(who, id) if self.living(who).is_some() => {
                self.timed_out(who.client, id);
            }
            Happening::Event(who, input) if self.living(who).is_some() => {
                self.on(who.client, input, None);
            }
            Happening::Due(who) if self.living(who).is_some_and(|it| it.due <= self.now) => {
                self.clients[who.client].due = u64::MAX;
                self.on(who.client, Input::Time, None);
            }
            Happening::Dropped(who, call) if self.living(who).is_some() => {
                self.drops(who.client, call);
            }
            Happening::Write(hold, key) => {
                let relies = self.relies(&key, &hold);
                self.judge.writes(&key, hold.token, relies);
            }
            Happening::Closes(who, life) if self.living(who).is_some() => {
                self.closes(who.client, life);
            }
            Happening::Gone(id) => {
                for server in 0..self.servers.len() {
                    self.servers[server].leaves(id);
                    self.notifies(server);
                }
            }
            Happening::GoesBack(server) => self.goes_back(server),
            Happening::Strikes(fault) => self.strikes(fault),
            Happening::Audit => self.audit(),
            _ => {}
        }
    }

    /// Ends all faults and new calls.
    fn ends(&mut self) {
        self.is_over = true;
        self.note(|| "faults and new calls end".to_owned());
        for client in 0..self.clients.len() {
            let (who, now) = (self.who(client), self.now);
            self.clients[client].paused_until = now;
            let calls: Vec<CallId> = self.clients[client].unpolled.iter().copied().collect();
            for call in calls {
                self.later(1_000 * MS, Happening::Dropped(who, call));
            }
            for task in 0..self.clients[client].tasks.len() {
                if self.clients[client].tasks[task].doing == Doing::Ready {
                    self.goes_on(client, task, MS);
                }
            }
        }
    }

    /// Looks at calls that wait, and at the counts of the servers.
    fn audit(&mut self) {
        for client in 0..self.clients.len() {
            for task in 0..self.clients[client].tasks.len() {
                self.audit_task(client, task);
            }
        }
        for client in 0..self.clients.len() {
            for key in self.keys.clone() {
                self.audit_reliance(client, &key);
                self.audit_losses(client, &key);
            }
        }
        if self.servers.len() == 1 {
            for key in self.keys.clone() {
                self.audit_server(&key);
            }
        }
        self.later(AUDIT, Happening::Audit);
    }

    fn audit_task(&mut self, client: usize, task: usize) {
        let (now, is_paused) = (self.now, self.clients[client].paused_until > self.now);
        let state = &self.clients[client].tasks[task];
        let Doing::Acquiring(call) = state.doing else {
            return;
        };
        let (since, deadline) = (state.since, state.deadline);
        if now > deadline && !is_paused {
            self.judge.breaks(Rule::InTime, || {
                format!("client {client}: {call:?} goes on")
            });
        }
        // A nested call waits for the requests of its hold.
        let wanted = &self.clients[client].tasks[task].wants;
        if is_paused || wanted.len() != 1 {
            return;
        }
        let key = self.keys[wanted[0]].clone();
        // A hold that was lost by its `max_hold`, or because a client asked, keeps the lock until it leaves.
        let holds = |client: &Client| {
            let own = client.machine.slot(&key).and_then(|slot| slot.current());
            own.is_some_and(|own| own.phase() == Phase::Held && own.lost().is_some())
        };
        if self.clients.iter().any(holds) {
            return;
        }
        let (clients, now) = (&self.clients, self.now);
        if !self
            .judge
            .is_held(&key, |hold| relies(clients, now, &key, hold))
        {
            let most = if self.may_delay() {
                LONGEST_IDLE
            } else {
                SHORTEST_IDLE
            };
            self.judge.waits(&key, since, now, most);
        }
    }

    /// Notes the owner, and compares the server's count with the entries of its hold, while no request is on its way.
    fn audit_server(&mut self, key: &Key) {
        let server = &mut self.servers[0];
        let time = server.time(self.now);
        let entry = server.state.inspect(key, time);
        let owner = entry
            .as_ref()
            .map_or(String::new(), |entry| entry.owner.clone());
        let may_be_orphaned = [
            Fault::Repeated,
            Fault::Held,
            Fault::ServerOlder,
            Fault::Refused,
            Fault::ClockAhead,
            Fault::ClockBack,
        ];
        let is_known = may_be_orphaned.iter().any(|fault| self.plan.has(*fault));
        let is_known = is_known || self.is_known(key, &owner);
        self.judge.sees(key, owner, is_known, self.now);
        let Some(entry) = entry.filter(|_| self.plan.counts_entries) else {
            return;
        };
        for client in &self.clients {
            let own = client.machine.slot(key).and_then(|slot| slot.current());
            let is_it =
                |owner| entry.owner == crate::owner::OwnerId::new(client.id, owner).to_string();
            let Some(own) = own.filter(|own| is_it(own.owner) && own.entries() > 0) else {
                continue;
            };
            let enters = |task: &Task| task.is_inside && matches!(task.doing, Doing::Acquiring(_));
            let is_settled = own.wanted_count(true).is_none()
                && client.awaited.is_empty()
                && !client.tasks.iter().any(enters);
            let may_differ = [Fault::Repeated, Fault::ServerOlder, Fault::Refused]
                .iter()
                .any(|fault| self.plan.has(*fault));
            if is_settled && own.entries() != entry.count && !may_differ {
                let (entries, count) = (own.entries(), entry.count);
                self.judge.breaks(Rule::CountsAreRight, || {
                    format!("{key}: {entries} entries, and {count} on the server")
                });
            }
        }
    }

    /// Returns whether nothing is left but audits.
    fn has_ended(&self) -> bool {
        self.happenings
            .values()
            .all(|what| matches!(**what, Happening::Audit))
    }

    fn look_at_the_end(&mut self) {
        // The locks of clients that are gone end with their leases, by the clocks of the servers.
        let longest = self.plan.leases.iter().max().copied().unwrap_or_default();
        self.now += u64::from(longest) * MS + CLOCK_STEPS;
        for (n, client) in self.clients.iter().enumerate() {
            let machine = &client.machine;
            if machine.slots().next().is_some() || !machine.is_drained() {
                self.judge
                    .breaks(Rule::NothingIsLeft, || format!("client {n}: {machine:#?}"));
            }
        }
        for server in &self.servers {
            let held = server.state.held(server.time(self.now));
            if !held.is_empty() {
                self.judge
                    .breaks(Rule::NothingIsLeft, || format!("locks {held:?}"));
            }
        }
    }

    /// Returns a number that two runs share only if their inputs and outputs are the same.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}

fn relies(clients: &[Client], now: u64, key: &Key, hold: &Hold) -> bool {
    let client = &clients[hold.client];
    client.life_number == hold.life
        && client.life < Life::Ended
        && judge::relies(&client.machine, key, hold, client.clock.time(now))
}
