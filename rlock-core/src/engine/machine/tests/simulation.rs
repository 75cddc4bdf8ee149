//! Machines of several clients against the rules of the embedded store, over a network that delays and loses.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use uuid::Uuid;

use super::super::*;
use crate::{
    lease::Time,
    options::{LockOptions, Site, Wait},
    owner::OwnerId,
    store::{
        self, AcquireRequest, Acquired, Claim, Listener, ReleaseRequest, Renewal,
        memory::state::State,
    },
};

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What happens at a time.
#[derive(Debug)]
enum Happening {
    /// A task of a client goes on.
    Task(usize, usize),
    /// A request arrives at the server.
    AtServer(usize, ToServer),
    /// A reply or an event arrives at the client.
    AtClient(usize, Input, Option<CallId>),
    /// The client's background looks at its schedule.
    Due(usize),
    /// An operator takes a lock away, or reports are missed.
    Operator,
    /// Futures that were never polled again are dropped.
    DropLeaked,
}

#[derive(Debug)]
enum ToServer {
    Request(Box<Request>),
    Renew(Renew, Time),
}

#[derive(Debug, Default)]
enum Task {
    #[default]
    Idle,
    Calling(CallId),
    Holding(Vec<Entered>),
    Nesting(CallId, Vec<Entered>),
    Leaving(CallId, Vec<Entered>),
}

struct Client {
    id: Uuid,
    machine: Machine,
    tasks: Vec<Task>,
    /// The task of each call, and the calls that are ready to be polled.
    calls: HashMap<CallId, usize>,
    /// The calls that wait for the reply to their own request. The world polls none of them meanwhile.
    sending: HashSet<CallId>,
    /// When the last message arrived, in each direction: connections keep the order.
    last: [u64; 2],
    due: u64,
}

struct World {
    rng: fastrand::Rng,
    now: u64,
    number: u64,
    happenings: BTreeMap<(u64, u64), Happening>,
    clients: Vec<Client>,
    state: State,
    events: Arc<Mutex<Vec<(Uuid, store::Event)>>>,
    keys: Vec<Key>,
    loss: u32,
    inputs: u64,
    grants: u64,
    tokens: BTreeMap<Key, u64>,
    /// The last token when a lock was deleted. Its holder learns that later.
    void: BTreeMap<Key, u64>,
    leaked: Vec<(usize, CallId)>,
    /// The releases whose futures are never polled again, and the replies that they would take.
    unpolled: HashSet<(usize, CallId)>,
    /// By when each call has its locks, or is refused.
    deadlines: HashMap<(usize, CallId), u64>,
    withheld: Vec<(usize, Box<Request>)>,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64, clients: usize, tasks: usize, keys: usize, loss: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut state = State::default();
        let events: Arc<Mutex<Vec<(Uuid, store::Event)>>> = Arc::default();
        let settings = Settings {
            response_timeout: ms(2_000),
            local_handovers: 2,
            counts_entries: rng.bool(),
            replicas: false,
            needs_majority: false,
        };
        let clients = (0..clients).map(|n| {
            let id = Uuid::from_u128(n as u128 + 1);
            let events = Arc::clone(&events);
            let listener: Listener =
                Arc::new(move |event| events.lock().expect("whole").push((id, event)));
            state.clients.insert(id, listener);
            Client {
                id,
                machine: Machine::new(settings, Spread(rng.u64(..) | 1)),
                tasks: (0..tasks).map(|_| Task::Idle).collect(),
                calls: HashMap::new(),
                sending: HashSet::new(),
                last: [0; 2],
                due: u64::MAX,
            }
        });
        let clients = clients.collect();
        let keys = (0..keys).map(|n| Key::parse(&format!("k{n}")).expect("valid"));
        let mut world = Self {
            rng,
            now: 1_000 * MS,
            number: 0,
            happenings: BTreeMap::new(),
            clients,
            state,
            events,
            keys: keys.collect(),
            loss,
            inputs: 0,
            grants: 0,
            tokens: BTreeMap::new(),
            void: BTreeMap::new(),
            leaked: Vec::new(),
            unpolled: HashSet::new(),
            deadlines: HashMap::new(),
            withheld: Vec::new(),
            log: Vec::new(),
        };
        for client in 0..world.clients.len() {
            for task in 0..tasks {
                world.later(0, Happening::Task(client, task));
            }
        }
        world.later(0, Happening::Operator);
        world.later(61_000 * MS, Happening::DropLeaked);
        world
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if std::env::var_os("RLOCK_LOG").is_some() {
            let line = format!("{:>12} {}", self.now / 1_000, what());
            self.log.push(line);
        }
    }

    fn later(&mut self, after: u64, what: Happening) {
        self.number += 1;
        let key = (self.now + after, self.number);
        self.happenings.insert(key, what);
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn is_lost(&mut self) -> bool {
        self.rng.u32(..1_000) < self.loss
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Sends in order over the connection of a client.
    fn send(&mut self, client: usize, direction: usize, what: Happening) {
        let delay = if self.rng.u8(..) < 8 {
            self.rng.u64(..300 * MS)
        } else {
            self.rng.u64(200_000..2 * MS)
        };
        let last = &mut self.clients[client].last[direction];
        *last = (*last + 1).max(self.now + delay);
        let after = *last - self.now;
        self.later(after, what);
    }

    fn input(&mut self, client: usize, input: Input) -> Vec<Output> {
        self.inputs += 1;
        self.note(|| format!("client {client} <- {input:?}"));
        let mut outputs = Vec::new();
        let now = self.time();
        self.clients[client].machine.on(input, now, &mut outputs);
        self.note(|| format!("client {client} -> {outputs:?}"));
        outputs
    }

    /// Gives a client an input, and does what follows. `call`: the call that the input is for.
    fn on(&mut self, client: usize, input: Input, call: Option<CallId>) {
        let outputs = self.input(client, input);
        for output in outputs {
            match output {
                Output::Step(step) => {
                    if let Some(call) = call {
                        self.step(client, call, step);
                    }
                }
                Output::Wake(call) => {
                    if let Some(task) = self.clients[client].calls.get(&call) {
                        let task = *task;
                        let after = self.rng.u64(..200_000);
                        self.later(after, Happening::Task(client, task));
                    }
                }
                Output::Send(request) => self.request(client, request),
                Output::Renew(renew) => {
                    let renew = ToServer::Renew(*renew, self.time());
                    if self.is_lost() {
                        self.unanswered(client, renew);
                    } else {
                        self.send(client, 0, Happening::AtServer(client, renew));
                    }
                }
                Output::Ended { .. }
                | Output::Lost(_)
                | Output::GaveUp(..)
                | Output::Revoked(_) => {}
            }
        }
        let due = self.clients[client].machine.due();
        if let Some(due) = due
            && due.nanos() < self.clients[client].due
        {
            self.clients[client].due = due.nanos();
            let after = due.nanos().saturating_sub(self.now);
            self.later(after, Happening::Due(client));
        }
    }

    fn request(&mut self, client: usize, request: Box<Request>) {
        let request = ToServer::Request(request);
        if self.is_lost() {
            self.unanswered(client, request);
        } else {
            self.send(client, 0, Happening::AtServer(client, request));
        }
    }

    /// The request, or its reply, is lost.
    fn unanswered(&mut self, client: usize, request: ToServer) {
        match request {
            ToServer::Request(request) => {
                let after = u64::try_from(request.timeout.as_nanos()).expect("short");
                let call = request.call;
                let input = Input::Reply(request, Reply::Failed(Failure::UNANSWERED));
                self.later(after, Happening::AtClient(client, input, call));
            }
            ToServer::Renew(renew, sent_at) => {
                let input = renewed(renew, sent_at, None);
                self.later(2_000 * MS, Happening::AtClient(client, input, None));
            }
        }
    }

    fn owner(&self, client: usize, owner: Owner) -> OwnerId {
        OwnerId::new(self.clients[client].id, owner)
    }

    fn step(&mut self, client: usize, call: CallId, step: Step) {
        let task = *self.clients[client].calls.get(&call).expect("known");
        if step.is_last()
            && let Some(deadline) = self.deadlines.remove(&(client, call))
        {
            assert!(
                self.now <= deadline,
                "{call:?} of {client} is late: {step:?}"
            );
        }
        match step {
            Step::Send(request) => {
                let is_release = matches!(request.what, Ask::Lower { .. });
                if is_release && self.rng.u16(..1000) < 3 && self.now < 60_000 * MS {
                    self.leak_release(client, task, call);
                } else {
                    self.clients[client].sending.insert(call);
                }
                self.request(client, request);
            }
            Step::Wait | Step::AskHolder(_) => {}
            Step::Entered(entered) => {
                self.clients[client].calls.remove(&call);
                for entered in &entered {
                    self.granted(client, entered);
                }
                let mut entries = match std::mem::take(&mut self.clients[client].tasks[task]) {
                    Task::Nesting(_, entries) => entries,
                    _ => Vec::new(),
                };
                entries.extend(entered);
                self.clients[client].tasks[task] = Task::Holding(entries);
                let after = self.rng.u64(..20 * MS);
                self.later(after, Happening::Task(client, task));
            }
            Step::Left(_) | Step::Refused(_) => {
                self.clients[client].calls.remove(&call);
                let left = std::mem::take(&mut self.clients[client].tasks[task]);
                let rest = match left {
                    Task::Leaving(_, rest) | Task::Nesting(_, rest) => rest,
                    _ => Vec::new(),
                };
                if !rest.is_empty() {
                    self.clients[client].tasks[task] = Task::Holding(rest);
                }
                let after = self.rng.u64(..5 * MS);
                self.later(after, Happening::Task(client, task));
            }
        }
    }

    /// The future of a release is neither polled again nor dropped before the end.
    fn leak_release(&mut self, client: usize, task: usize, call: CallId) {
        self.clients[client].calls.remove(&call);
        self.unpolled.insert((client, call));
        self.leaked.push((client, call));
        let left = &mut self.clients[client].tasks[task];
        *left = match std::mem::take(left) {
            Task::Leaving(_, rest) if !rest.is_empty() => Task::Holding(rest),
            _ => Task::Idle,
        };
        self.later(MS, Happening::Task(client, task));
    }

    /// Checks that nobody else holds the lock, and that tokens grow.
    fn granted(&mut self, client: usize, entered: &Entered) {
        self.grants += 1;
        let (key, owner) = (&entered.entry.key, entered.entry.owner);
        let now = self.time();
        let void = self.void.get(key).copied().unwrap_or_default();
        if entered.token <= void {
            return;
        }
        for (n, other) in self.clients.iter().enumerate() {
            for (held, token, valid_until) in holds(&other.machine, key) {
                let is_void = token <= void;
                let is_same = n == client && held == owner || is_void;
                assert!(
                    is_same || valid_until <= now,
                    "two holders of {key:?} at {}: {client}:{owner} and {n}:{held}",
                    self.now
                );
            }
        }
        if entered.began.is_some() {
            let last = self.tokens.entry(key.clone()).or_default();
            assert!(entered.token > *last, "tokens of {key:?}");
            *last = entered.token;
        }
    }

    fn task(&mut self, client: usize, task: usize) {
        let number = self.number();
        let is_over = self.now > 60_000 * MS;
        match std::mem::take(&mut self.clients[client].tasks[task]) {
            Task::Idle if is_over => {}
            Task::Idle => self.begin(client, task, CallId(number)),
            Task::Calling(call) => {
                self.clients[client].tasks[task] = Task::Calling(call);
                // A call may be dropped instead, or never polled again.
                if self.rng.u16(..1000) < 3
                    && !is_over
                    && !self.clients[client].sending.contains(&call)
                {
                    self.clients[client].calls.remove(&call);
                    self.clients[client].tasks[task] = Task::Idle;
                    self.leaked.push((client, call));
                    self.later(MS, Happening::Task(client, task));
                } else if self.rng.u8(..100) < 4 {
                    self.clients[client].calls.remove(&call);
                    self.clients[client].tasks[task] = Task::Idle;
                    self.on(client, Input::Cancel(call), None);
                    self.later(MS, Happening::Task(client, task));
                } else {
                    self.poll(client, call);
                }
            }
            Task::Holding(mut entries) => {
                let nests = self.rng.u8(..100) < 25 && entries.len() < 4 && !is_over;
                if let Some(entered) = entries.last().filter(|_| nests) {
                    let inside = Some((entered.entry.owner, entered.token));
                    let keys = one((entered.entry.key.clone(), inside));
                    let call = CallId(number);
                    let terms = self.terms();
                    self.waits(client, call, terms.wait);
                    self.clients[client].calls.insert(call, task);
                    self.clients[client].tasks[task] = Task::Nesting(call, entries);
                    let acquire = Input::Acquire {
                        call,
                        keys,
                        terms,
                        is_inside: true,
                    };
                    return self.on(client, acquire, Some(call));
                }
                let Some(entered) = entries.pop() else {
                    self.later(MS, Happening::Task(client, task));
                    return;
                };
                let entry = entered.entry;
                let end = HoldEnd::Released;
                if self.rng.bool() {
                    let call = CallId(number);
                    self.clients[client].calls.insert(call, task);
                    self.clients[client].tasks[task] = Task::Leaving(call, entries);
                    let call = Some(call);
                    self.on(client, Input::Leave { entry, end, call }, call);
                } else {
                    self.clients[client].tasks[task] = Task::Holding(entries);
                    let call = None;
                    self.on(client, Input::Leave { entry, end, call }, call);
                    self.later(MS, Happening::Task(client, task));
                }
                if let Task::Holding(entries) = &self.clients[client].tasks[task]
                    && entries.is_empty()
                {
                    self.clients[client].tasks[task] = Task::Idle;
                }
            }
            Task::Nesting(call, entries) if self.rng.u8(..100) < 4 => {
                self.clients[client].calls.remove(&call);
                self.clients[client].tasks[task] = Task::Holding(entries);
                self.on(client, Input::Cancel(call), None);
                self.later(MS, Happening::Task(client, task));
            }
            Task::Nesting(call, entries) => {
                self.clients[client].tasks[task] = Task::Nesting(call, entries);
                self.poll(client, call);
            }
            Task::Leaving(call, entries) => {
                self.clients[client].tasks[task] = Task::Leaving(call, entries);
                self.poll(client, call);
            }
        }
    }

    fn begin(&mut self, client: usize, task: usize, call: CallId) {
        self.clients[client].calls.insert(call, task);
        self.clients[client].tasks[task] = Task::Calling(call);
        let mut keys: Few<(Key, Option<(Owner, u64)>)> = Few::new();
        let most = if self.rng.u8(..10) == 0 { 2 } else { 1 };
        let first = self.rng.usize(..self.keys.len());
        for n in 0..most.min(self.keys.len()) {
            let key = self.keys[(first + n) % self.keys.len()].clone();
            keys.push((key, None));
        }
        keys.sort();
        let terms = self.terms();
        self.waits(client, call, terms.wait);
        self.on(
            client,
            Input::Acquire {
                call,
                keys,
                terms,
                is_inside: false,
            },
            Some(call),
        );
    }

    /// Notes when a call with this wait is over: a request that is lost has its time-out, and a reply takes up to 0.3 s.
    fn waits(&mut self, client: usize, call: CallId, wait: Wait) {
        let wait = match wait {
            Wait::Never => ms(3_500),
            Wait::For(wait) => wait + ms(700),
            Wait::Forever => return,
        };
        let wait = u64::try_from(wait.as_nanos()).expect("short");
        self.deadlines.insert((client, call), self.now + wait);
    }

    fn poll(&mut self, client: usize, call: CallId) {
        if !self.clients[client].sending.contains(&call) {
            self.on(client, Input::Poll(call), Some(call));
        }
    }

    fn operator(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        let key = self.keys[self.rng.usize(..self.keys.len())].clone();
        let event = match self.rng.u8(..6) {
            0 => Some(Event::Missed {
                is_heard: self.rng.bool(),
            }),
            1 | 2 => Some(Event::Revoke {
                token: None,
                at_once: false,
            }),
            // The store changes first, and then the client learns of it, or only of the change.
            kind => {
                let now = self.time();
                let entry = self.state.inspect(&key, now);
                self.note(|| format!("deletes {key}: {entry:?}"));
                if let Some(fence) = entry.and_then(|entry| entry.fence) {
                    self.void.insert(key.clone(), fence * 128 + 127);
                }
                self.state.revoke(&key, now);
                self.deliver();
                (kind == 3).then_some(Event::Revoke {
                    token: None,
                    at_once: true,
                })
            }
        };
        let current = self.clients[client]
            .machine
            .slot(&key)
            .and_then(Slot::current);
        if let (Some(event), Some(owner)) = (event, current.map(|own| own.owner)) {
            self.on(client, Input::Event(key, Some(owner), event), None);
        }
        if self.now < 60_000 * MS {
            let after = self.rng.u64(..500 * MS);
            self.later(after, Happening::Operator);
        }
    }

    fn terms(&mut self) -> LockOptions {
        let rng = &mut self.rng;
        LockOptions {
            lease: ms([100, 300, 1_000, 3_000][rng.usize(..4)]),
            wait: match rng.u8(..10) {
                0 => Wait::Never,
                1 => Wait::Forever,
                _ => Wait::For(ms(rng.u64(1..3_000))),
            },
            watchdog: rng.u8(..10) > 0,
            max_hold: (rng.u8(..20) == 0).then(|| ms(rng.u64(5..50))),
            at_least: (rng.u8(..20) == 0).then(|| ms(rng.u64(1..50))),
            retain: if rng.bool() { ms(100) } else { ms(0) },
            site: Site::default(),
        }
    }

    fn at_server(&mut self, client: usize, what: ToServer) {
        let now = self.time();
        match what {
            ToServer::Request(request) => {
                let call = request.call;
                let reply = self.execute(client, &request, now);
                if self.is_lost() {
                    self.unanswered(client, ToServer::Request(request));
                } else {
                    let input = Input::Reply(request, reply);
                    self.send(client, 1, Happening::AtClient(client, input, call));
                }
            }
            ToServer::Renew(renew, sent_at) => {
                let claim = Claim {
                    key: renew.key.clone(),
                    owner: self.owner(client, renew.owner),
                };
                let fence = renew.fence;
                let renewed_ = self
                    .state
                    .renew(&[Renewal { claim, fence }], renew.lease, now);
                if self.is_lost() {
                    self.unanswered(client, ToServer::Renew(renew, sent_at));
                } else {
                    let input = renewed(renew, sent_at, renewed_.kept.first().copied());
                    self.send(client, 1, Happening::AtClient(client, input, None));
                }
            }
        }
        self.deliver();
    }

    fn execute(&mut self, client: usize, request: &Request, now: Time) -> Reply {
        let claims = request.claims.iter().map(|claim| Claim {
            key: claim.key.clone(),
            owner: self.owner(client, claim.owner),
        });
        let claims: Arc<[Claim]> = claims.collect();
        let (lease, count, waits) = match request.what {
            Ask::Acquire { lease, waits, .. } => (lease, 1, waits),
            Ask::Enter { lease, count, .. } => (lease, count, false),
            Ask::Lower {
                fence,
                count,
                at_least,
                ..
            } => {
                let release = ReleaseRequest {
                    key: claims[0].key.clone(),
                    owner: claims[0].owner,
                    fence,
                    count,
                    at_least,
                };
                return Reply::Released(self.state.release(&release, now));
            }
        };
        let request = AcquireRequest {
            claims,
            lease,
            count,
            waits,
        };
        let mut acquired = self.state.acquire(&request, now);
        // It was sent before it arrived.
        let sent = Time::from_nanos(now.nanos() - MS / 10);
        match &mut acquired {
            Acquired::Granted { sent_at, .. } | Acquired::Taken { sent_at, .. } => *sent_at = sent,
            Acquired::NotOwner => {}
        }
        Reply::Acquired(acquired)
    }

    /// Sends the notifications of the store.
    fn deliver(&mut self) {
        for (listener, event) in std::mem::take(&mut self.state.messages) {
            listener(event);
        }
        let events = std::mem::take(&mut *self.events.lock().expect("whole"));
        for (id, event) in events {
            let client = usize::try_from(id.as_u128() - 1).expect("small");
            let input = match event {
                store::Event::Granted {
                    key,
                    owner,
                    fence,
                    ttl,
                    wanted,
                } => Input::Event(
                    key,
                    Some(owner.sequence()),
                    Event::Granted { fence, ttl, wanted },
                ),
                store::Event::Wanted { key, owner } => {
                    Input::Event(key, Some(owner.sequence()), Event::Wanted)
                }
                store::Event::Retry { key, owner, after } => {
                    Input::Event(key, Some(owner.sequence()), Event::Retry(after))
                }
                store::Event::Changed(key) => Input::Event(key, None, Event::Changed),
                _ => continue,
            };
            if !self.is_lost() {
                self.send(client, 1, Happening::AtClient(client, input, None));
            }
        }
    }

    fn run(&mut self) {
        let end = 120_000 * MS;
        while let Some(((at, _), what)) = self.happenings.pop_first() {
            self.now = at;
            if at > end {
                break;
            }
            match what {
                Happening::Task(client, task) => self.task(client, task),
                Happening::AtServer(client, what) => self.at_server(client, what),
                Happening::AtClient(client, Input::Reply(request, _), Some(call))
                    if self.unpolled.contains(&(client, call)) =>
                {
                    self.withheld.push((client, request));
                }
                Happening::AtClient(client, input, call) => {
                    if let Some(call) = call {
                        self.clients[client].sending.remove(&call);
                    }
                    let polled = call.filter(|call| self.clients[client].calls.contains_key(call));
                    self.on(client, input, polled);
                }
                Happening::Operator => self.operator(),
                Happening::DropLeaked => {
                    self.unpolled.clear();
                    for (client, request) in std::mem::take(&mut self.withheld) {
                        self.on(client, Input::Reply(request, Reply::None), None);
                    }
                    for (client, call) in std::mem::take(&mut self.leaked) {
                        self.on(client, Input::Cancel(call), None);
                    }
                }
                Happening::Due(client) => {
                    if self.clients[client].due <= self.now {
                        self.clients[client].due = u64::MAX;
                        self.on(client, Input::Time, None);
                    }
                }
            }
        }
        for (n, client) in self.clients.iter().enumerate() {
            assert!(
                client.machine.slots.is_empty() && client.machine.cx.calls.is_empty(),
                "client {n} is left with {:#?}",
                client.machine
            );
        }
    }
}

/// Returns the valid holds of a key, and until when they are valid.
fn holds(machine: &Machine, key: &Key) -> Vec<(Owner, u64, Time)> {
    let slot = machine.slot(key).into_iter();
    let owns = slot.flat_map(|slot| slot.ownerships.iter());
    let held = owns.filter(|own| own.phase() == Phase::Held);
    let valid = held.filter_map(|own| {
        let until = own.valid_until(Time::default()).ok()?;
        Some((own.owner, own.token, until))
    });
    valid.collect()
}

fn renewed(renew: Renew, sent_at: Time, outcome: Option<RenewalOutcome>) -> Input {
    let lease = renew.lease;
    let event = Event::Renewed {
        lease,
        sent_at,
        outcome,
    };
    Input::Event(renew.key, Some(renew.owner), event)
}

#[test]
fn nobody_holds_a_lock_beside_another_and_everything_ends() {
    let seeds = std::env::var("RLOCK_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let first = std::env::var("RLOCK_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let (first, seeds): (u64, u64) = (first.unwrap_or(0), seeds.unwrap_or(20));
    let (mut inputs, mut grants) = (0, 0);
    let started = std::time::Instant::now();
    for seed in first..first + seeds {
        let loss = [0, 10, 100][usize::try_from(seed % 3).expect("small")];
        let mut world = World::new(seed, 3, 3, 2, loss);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if let Err(panic) = outcome {
            for line in world.log.iter().rev().take(4000).rev() {
                eprintln!("{line}");
            }
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        inputs += world.inputs;
        grants += world.grants;
    }
    eprintln!(
        "{inputs} inputs, {grants} grants in {:?}",
        started.elapsed()
    );
    assert!(grants > 100 * seeds, "{grants} grants");
}
