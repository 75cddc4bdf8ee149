//! The state of the world.

use super::{
    Config, Faults, Time,
    client::{Client, Stage, Task},
    network::{Message, Network},
    resource::Resource,
    seen::{Seen, Situation},
    words,
};
use crate::{
    machine::Slot,
    server::Server,
    store::TOKENS,
    words::{Acquire, Claim, Effects, Fence, Fenced, Key, Mode, Notification, Owner, Token},
};

/// The state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) server: Server,
    pub(super) clients: Vec<Client>,
    pub(super) network: Network,
    pub(super) resource: Resource,
    /// The remaining faults.
    pub(super) left: Faults,
    /// The tokens of all fences that the server set, in this order.
    pub(super) tokens: Vec<TokenRange>,
    /// The token of the latest hold of each key, and of the latest exclusive one.
    pub(super) latest: Vec<Token>,
    latest_exclusive: Vec<Token>,
    /// The time until which each key stays taken after its last hold, by `min_hold`.
    pub(super) kept_until: Vec<Time>,
    /// The rule that a step broke.
    pub(super) broken: Option<Rule>,
    pub(super) seen: Seen,
}

/// The tokens that an owner got with one fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenRange {
    key: Key,
    owner: Owner,
    first: Token,
    last: Token,
}

impl TokenRange {
    pub(super) fn has(&self, owner: Owner, token: Token) -> bool {
        self.owner == owner && (self.first..=self.last).contains(&token)
    }

    fn covers(&self, key: Key, token: Token) -> bool {
        self.key == key && (self.first..=self.last).contains(&token)
    }
}

/// A rule that every step must obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Grants, renewals and holds have larger tokens than all earlier ones.
    TokensGrow,
    /// A renewal creates no lock, and revives no lease.
    RenewalsCreateNothing,
    /// No owner gets a lock before an earlier waiter.
    NoOvertaking,
    /// An owner waits only for a holder whose lease lasts, or for an earlier waiter.
    NoWaitWithoutReason,
    /// No call joins a hold of its client after that client has learned that another one waits.
    NoLateJoin,
    /// No renewal is sent after the release.
    NoRenewalAfterRelease,
    /// No hold begins on an ownership whose loss is known.
    NoHoldAfterLoss,
    /// No release counts as done if another owner had the lock before it.
    NoReleaseAfterOthers,
    /// No lock is reported as lost within its lease.
    NoFalseLoss,
    /// A hold that has ended by the clock is lost as soon as its client does what is due.
    LossesNoticed,
    /// No hold is renewed beyond its `max_hold`.
    NoRenewalAfterMaxHold,
    /// No call is refused without a reason.
    NoRefusalWithoutReason,
    /// The number of local hand-overs is limited while other clients are known to wait.
    HandoversLimited,
    /// No hold begins within the `min_hold` of the one before.
    Kept,
    /// A call ends by its deadline.
    InTime,
    /// The machine's invariants hold.
    Consistent,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        let mut server = Server::new(Config::STEP).notifying_once(config.notifies_once);
        let clients = (0..).zip(&config.clients).map(|(name, callers)| {
            server.join(name);
            Client::new(name, callers, config.counts_entries)
        });
        Self {
            clients: clients.collect(),
            server,
            network: Network::default(),
            resource: Resource::default(),
            left: config.faults,
            tokens: Vec::new(),
            latest: vec![0; usize::from(config.keys())],
            latest_exclusive: vec![0; usize::from(config.keys())],
            kept_until: vec![0; usize::from(config.keys())],
            broken: None,
            seen: Seen::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.server.now() / Config::STEP
    }

    pub(super) fn client(&mut self, name: u8) -> &mut Client {
        &mut self.clients[usize::from(name)]
    }

    pub(super) fn breaks(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    /// Returns the number of callers with a valid hold of this key.
    pub(super) fn holders(&self, key: Key) -> usize {
        let now = self.now();
        let holds = |client: &Client| {
            let tasks = client.tasks.iter();
            tasks
                .filter(|task| client.is_inside(task, key, now))
                .count()
        };
        self.clients.iter().map(holds).sum()
    }

    /// Returns whether the callers with a valid hold of this key may have it at once.
    pub(super) fn tolerate(&self, config: &Config, key: Key) -> bool {
        let now = self.now();
        let inside = |client: &Client| -> Vec<Mode> {
            let tasks = client.tasks.iter().enumerate();
            let inside = tasks.filter(|(_, task)| client.is_inside(task, key, now));
            let mode = |(at, task): (usize, &Task)| {
                let of_caller = config.caller(client.name, at).mode;
                if task.is_downgraded {
                    Mode::Shared
                } else {
                    of_caller
                }
            };
            inside.map(mode).collect()
        };
        let modes: Vec<Mode> = self.clients.iter().flat_map(inside).collect();
        match modes.first() {
            Some(Mode::Permits(most)) => {
                modes.len() <= usize::from(*most) && modes.iter().all(|mode| *mode == modes[0])
            }
            Some(Mode::Shared) => modes.iter().all(|mode| *mode == Mode::Shared),
            Some(Mode::Exclusive) => modes.len() == 1,
            None => true,
        }
    }

    /// Returns whether two clients have a valid hold of this key.
    pub(super) fn are_together(&self, key: Key) -> bool {
        let now = self.now();
        let holds = |client: &&Client| client.holds(key, now).is_some();
        self.clients.iter().filter(holds).count() > 1
    }

    /// Returns whether a caller of another client is in a lock that it has downgraded.
    pub(super) fn is_downgraded_elsewhere(&self, name: u8) -> bool {
        let mut others = self.clients.iter().filter(|client| client.name != name);
        let is_inside = |task: &Task| task.is_downgraded && !task.entries.is_empty();
        others.any(|client| client.tasks.iter().any(is_inside))
    }

    pub(super) fn keys(&self) -> std::ops::Range<Key> {
        0..u8::try_from(self.latest.len()).expect("few keys")
    }

    /// Records the effects of a step of the server.
    pub(super) fn note(&mut self, effects: Effects) {
        let Effects {
            notifications,
            grants,
            renewed,
        } = effects;
        let now = self.now();
        for Fenced { key, owner, .. } in &grants {
            for client in &mut self.clients {
                let slot = client.machine.slot(&words::key(*key));
                let owns = slot.into_iter().flat_map(Slot::ownerships);
                let overtaken = owns.filter(|own| {
                    let own_name = words::owner(client.name, own.owner, own.mode);
                    let is_other = own_name != *owner && !own_name.mode.tolerates(owner.mode);
                    own.token > 0 && is_other
                });
                let overtaken: Vec<u64> = overtaken.map(|own| own.owner).collect();
                for own in overtaken {
                    client.known(own).overtaken.get_or_insert(now);
                }
            }
        }
        let fences = grants.into_iter().map(|grant| (grant, false));
        let renewed = renewed.into_iter().map(|renewed| (renewed, true));
        for (Fenced { key, owner, fence }, is_renewed) in fences.chain(renewed) {
            self.fenced(key, owner, fence, is_renewed);
        }
        for notification in notifications {
            if self.changes_anything(notification) {
                self.network.send(Message::Notification(notification));
            }
        }
    }

    fn fenced(&mut self, key: Key, owner: Owner, fence: Fence, is_renewed: bool) {
        let of_key = self.tokens.iter().rev().find(|tokens| tokens.key == key);
        let before = of_key.map_or(0, |tokens| tokens.last);
        if fence * TOKENS <= before {
            self.breaks(Rule::TokensGrow);
        }
        self.tokens.push(TokenRange {
            key,
            owner,
            first: if is_renewed {
                before + 1
            } else {
                fence * TOKENS
            },
            last: fence * TOKENS + TOKENS - 1,
        });
    }

    /// Returns whether the arrival of a notification changes anything.
    pub(super) fn changes_anything(&self, notification: Notification) -> bool {
        let client = &self.clients[usize::from(notification.owner().client)];
        let (key, owner) = (words::key(notification.key()), notification.owner());
        let is_known = client.machine.own(&key, owner.sequence.into()).is_some();
        let is_wanted = client.machine.slot(&key).is_some_and(|slot| slot.wanted);
        is_known && !(is_wanted && matches!(notification, Notification::Wanted { .. }))
    }

    /// Drops the notifications that change nothing any more.
    pub(super) fn forget_notifications(&mut self) {
        let mut network = std::mem::take(&mut self.network);
        network.retain_notifications(|notification| self.changes_anything(notification));
        self.network = network;
    }

    /// Notes that a hold begins.
    pub(super) fn begins(
        &mut self,
        config: &Config,
        key: Key,
        (full, mode): (Owner, Mode),
        token: Token,
    ) {
        let (name, owner) = (full.client, full.sequence.into());
        if self.client(name).known(owner).lost.is_some() {
            self.breaks(Rule::NoHoldAfterLoss);
        }
        let may_be_early = config.may_overtake() || config.shares();
        if self.now() < self.kept_until[usize::from(key)] && !may_be_early {
            self.breaks(Rule::Kept);
        }
        let is_exclusive = mode == Mode::Exclusive;
        // Shared holds need only have larger tokens than the exclusive ones before.
        let latest = if is_exclusive {
            self.latest[usize::from(key)]
        } else {
            self.latest_exclusive[usize::from(key)]
        };
        let range = self
            .tokens
            .iter()
            .position(|tokens| tokens.has(full, token));
        let is_above = if config.may_overtake() {
            // If two clients hold the lock, only the order of the grants counts.
            range.is_some()
        } else {
            // A reader that joins a hold which was exclusive before has its token.
            token > latest || token == latest && !is_exclusive && config.downgrades()
        };
        let is_of_another = self.tokens.iter().any(|tokens| {
            let of = tokens.owner;
            (of.client, of.sequence) != (full.client, full.sequence) && tokens.covers(key, token)
        });
        if !is_above || is_of_another {
            self.breaks(Rule::TokensGrow);
        }
        let is_renewed = range.is_some_and(|at| !self.tokens[at].first.is_multiple_of(TOKENS));
        if is_renewed {
            self.seen.note(Situation::TokenOfRenewal);
        }
        let of_key = &mut self.latest[usize::from(key)];
        *of_key = token.max(*of_key);
        if is_exclusive {
            self.latest_exclusive[usize::from(key)] = *of_key;
        }
    }

    /// Returns whether a client other than this one has not noticed that a hold has ended.
    pub(super) fn is_believed(&self, name: u8) -> bool {
        let now = self.now();
        let mut others = self.clients.iter().filter(|client| client.name != name);
        others.any(|client| client.believes(now))
    }

    /// Returns whether the server granted the lock to another owner after it granted this token.
    pub(super) fn is_overtaken(&self, key: Key, owner: Owner, token: Token) -> bool {
        let mut of_key = self.tokens.iter().filter(|tokens| tokens.key == key);
        let own = of_key.find(|own| own.has(owner, token));
        let is_other =
            |other: &TokenRange| other.owner != owner && !other.owner.mode.tolerates(owner.mode);
        own.is_some() && of_key.any(is_other)
    }

    /// Stops a client, which has shut down or died.
    pub(super) fn stop(&mut self, name: u8) {
        self.client(name).die();
        self.network.forget_client(name);
        self.server.leave(name);
    }

    /// Returns whether no message is in flight and all clients are idle.
    pub(super) fn is_quiet(&self) -> bool {
        self.network.is_empty() && self.clients.iter().all(Client::is_idle)
    }

    /// Returns whether a call has not ended.
    pub(super) fn waits(&self) -> bool {
        let waits = |stage| matches!(stage, Stage::Calling(..));
        let mut tasks = self.clients.iter().flat_map(|client| &client.tasks);
        tasks.any(|task| waits(task.stage))
    }

    /// Returns whether a new client would get the locks after this time if all others died now.
    pub(super) fn become_free(&self, time: Time) -> bool {
        let newcomer = Owner {
            client: u8::MAX,
            sequence: 0,
            mode: Mode::Exclusive,
        };
        let mut server = self.server.clone();
        (0..)
            .zip(&self.clients)
            .for_each(|(name, _)| server.leave(name));
        server.pass(time * Config::STEP);
        server.join(newcomer.client);
        self.keys().all(|key| {
            let ask = Acquire {
                claims: vec![Claim {
                    key,
                    owner: newcomer,
                }],
                lease: 1,
                count: 1,
                waits: true,
                floor: 0,
            };
            server.acquire(&ask, &mut Effects::default());
            server.holds(key, newcomer)
        })
    }
}
