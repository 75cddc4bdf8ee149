//! The state of a world: clients, server, resource and network.

use super::{
    Config, Faults, Time,
    client::{Client, Stage, Task},
    config::{TOKENS, duration, time},
    network::{Message, Network},
    resource::Resource,
    seen::{Seen, Situation},
    tokens::TokenRange,
};
use crate::{
    machine::{Event, Input, Slot},
    mode::LockMode,
    owner::OwnerId,
    requests::{Body, to_input},
    server::{self, Effects, Fenced, Server, client_of, tolerate},
    store::Claim,
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
    pub(super) latest: Vec<u64>,
    latest_exclusive: Vec<u64>,
    /// The time until which each key stays taken after its last hold, by `min_hold`.
    pub(super) kept_until: Vec<Time>,
    /// The rule that a step broke.
    pub(super) broken: Option<Rule>,
    pub(super) seen: Seen,
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
        let mut server = Server::new(time(1)).notifying_once(config.notifies_once);
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
        self.server.now().nanos() / time(1).nanos()
    }

    pub(super) fn client(&mut self, name: u8) -> &mut Client {
        &mut self.clients[usize::from(name)]
    }

    pub(super) fn breaks(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    /// Returns the number of callers with a valid hold of this key.
    pub(super) fn holders(&self, key: u8) -> usize {
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
    pub(super) fn tolerate(&self, config: &Config, key: u8) -> bool {
        let now = self.now();
        let inside = |client: &Client| -> Vec<LockMode> {
            let tasks = client.tasks.iter().enumerate();
            let inside = tasks.filter(|(_, task)| client.is_inside(task, key, now));
            let mode = |(at, task): (usize, &Task)| {
                let of_caller = config.caller(client.name, at).mode;
                if task.is_downgraded {
                    LockMode::Shared
                } else {
                    of_caller
                }
            };
            inside.map(mode).collect()
        };
        let modes: Vec<LockMode> = self.clients.iter().flat_map(inside).collect();
        match modes.first() {
            Some(LockMode::Permits(most)) => {
                modes.len() <= *most as usize && modes.iter().all(|mode| *mode == modes[0])
            }
            Some(LockMode::Shared) => modes.iter().all(|mode| *mode == LockMode::Shared),
            Some(_) => modes.len() == 1,
            None => true,
        }
    }

    /// Returns whether two clients have a valid hold of this key.
    pub(super) fn are_together(&self, key: u8) -> bool {
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

    pub(super) fn keys(&self) -> std::ops::Range<u8> {
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
                let slot = client.machine.slot(&server::key(*key));
                let owns = slot.into_iter().flat_map(Slot::ownerships);
                let overtaken = owns.filter(|own| {
                    let own_name = server::owner(client.name, own.owner, own.mode);
                    let is_other = own_name != *owner && !tolerate(own.mode, owner.mode());
                    own.token().is_some() && is_other
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
        for event in notifications {
            let to = client_of(server::owner_of(&event));
            if let Some(input) = to_input(event)
                && self.changes_anything(to, &input)
            {
                self.network.send(Message::Notification(to, input));
            }
        }
    }

    fn fenced(&mut self, key: u8, owner: OwnerId, fence: u64, is_renewed: bool) {
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
    pub(super) fn changes_anything(&self, to: u8, notification: &Input) -> bool {
        let Input::Event(key, Some(owner), event) = notification else {
            return true;
        };
        let machine = &self.clients[usize::from(to)].machine;
        let is_wanted = machine.slot(key).is_some_and(Slot::others_wait);
        machine.own(key, *owner).is_some() && !(is_wanted && matches!(event, Event::Wanted))
    }

    /// Drops the notifications that change nothing any more.
    pub(super) fn forget_notifications(&mut self) {
        let mut network = std::mem::take(&mut self.network);
        network.retain_notifications(|to, notification| self.changes_anything(to, notification));
        self.network = network;
    }

    /// Notes that a hold begins.
    pub(super) fn begins(
        &mut self,
        config: &Config,
        key: u8,
        (full, mode): (OwnerId, LockMode),
        token: u64,
    ) {
        let (name, owner) = (client_of(full), full.sequence());
        if self.client(name).known(owner).lost.is_some() {
            self.breaks(Rule::NoHoldAfterLoss);
        }
        let may_be_early = config.may_overtake() || config.shares();
        if self.now() < self.kept_until[usize::from(key)] && !may_be_early {
            self.breaks(Rule::Kept);
        }
        let is_exclusive = mode == LockMode::Exclusive;
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
            (of.client(), of.sequence()) != (full.client(), full.sequence())
                && tokens.covers(key, token)
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
    pub(super) fn is_overtaken(&self, key: u8, owner: OwnerId, token: u64) -> bool {
        let mut of_key = self.tokens.iter().filter(|tokens| tokens.key == key);
        let own = of_key.find(|own| own.has(owner, token));
        let is_other = |other: &TokenRange| {
            other.owner != owner && !tolerate(other.owner.mode(), owner.mode())
        };
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
        let newcomer = server::owner(u8::MAX, 0, LockMode::Exclusive);
        let mut server = self.server.clone();
        (0..)
            .zip(&self.clients)
            .for_each(|(name, _)| server.leave(name));
        server.pass(duration(time));
        server.join(u8::MAX);
        self.keys().all(|key| {
            let (key, owner) = (server::key(key), newcomer);
            server.execute(&Body::attempt(
                Claim {
                    key: key.clone(),
                    owner,
                },
                true,
            ));
            server.holds(&key, owner)
        })
    }
}
