//! The state of the world.

use super::{
    Config, Faults, KEY, Time,
    client::Client,
    network::{Message, Network, Request},
    ownership::{How, Ownership},
    resource::Resource,
};
use crate::{
    server::{Constants, Server},
    words::{Block, Claim, Effects, Notification, Owner, Token},
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
    /// All blocks that the server granted, in this order.
    pub(super) blocks: Vec<Block>,
    /// The token of the latest hold.
    pub(super) latest: Token,
    /// The rule that a step broke.
    pub(super) broken: Option<Rule>,
}

/// A rule that every step must obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Grants, extensions and holds have larger tokens than all earlier ones.
    TokensGrow,
    /// A renewal does not create a lock.
    RenewalsCreateNothing,
    /// No renewal is sent after the release.
    NoRenewalAfterRelease,
    /// No hold begins on an ownership whose loss is known.
    NoHoldAfterLoss,
    /// The number of local hand-overs is limited while other clients are known to wait.
    HandoversLimited,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        // The clock was at one long before the first token.
        let constants = Constants {
            grace: Config::LEASE,
            silent: 1,
            queue: 1_000,
            block: config.block,
        };
        let mut server = Server::new(1, constants).with_bug(config.server_bug());
        (0..config.clients).for_each(|client| server.join(client));
        Self {
            server,
            clients: (0..config.clients)
                .map(|name| Client::new(name, config.callers))
                .collect(),
            network: Network::default(),
            resource: Resource::default(),
            left: config.faults,
            blocks: Vec::new(),
            latest: 0,
            broken: None,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.server.now()
    }

    /// Returns whether a rule was broken. Later states are not explored.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(super) fn client(&mut self, name: u8) -> &mut Client {
        &mut self.clients[usize::from(name)]
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Client> {
        self.clients
            .iter()
            .filter(|client| client.holds(self.now()))
    }

    pub(super) fn relied_on(&self) -> impl Iterator<Item = &Ownership> {
        let rely = self
            .clients
            .iter()
            .filter(|client| client.relies(self.now()));
        rely.filter_map(|client| client.ownership.as_ref())
    }

    /// Sends a request of a client.
    pub(super) fn ask(&mut self, from: u8, id: u8, request: Request) {
        if let Request::Renew(renewal) = &request {
            let releasing = &self.clients[usize::from(from)].releasing;
            let ends = |claim: &Claim| releasing.iter().any(|one| one.owner == claim.owner);
            if renewal.claims.iter().any(ends) {
                self.broken = Some(Rule::NoRenewalAfterRelease);
            }
        }
        self.network.send(Message::Request { from, id, request });
    }

    /// Records the effects of a step of the server.
    pub(super) fn note(&mut self, effects: Effects) {
        let Effects {
            notifications,
            grants,
            extensions,
        } = effects;
        for block in &grants {
            let now = self.server.now();
            let ownerships = self.clients.iter_mut().filter_map(|c| c.ownership.as_mut());
            for ownership in ownerships.filter(|ownership| ownership.owner != block.owner) {
                ownership.overtaken.get_or_insert(now);
            }
        }
        for block in grants.into_iter().chain(extensions) {
            let last = self.blocks.last().map_or(0, |block| block.last);
            if block.first <= last {
                self.broken = Some(Rule::TokensGrow);
            }
            self.blocks.push(block);
        }
        for notification in notifications {
            if self.changes_anything(notification) {
                self.network.send(Message::Notification(notification));
            }
        }
    }

    /// Returns whether the arrival of a notification changes anything.
    fn changes_anything(&self, notification: Notification) -> bool {
        let client = &self.clients[usize::from(notification.owner().client)];
        match notification {
            Notification::Wanted { owner, .. } => {
                let acquisition = client.acquisition.as_ref();
                let ownership = client.ownership.as_ref();
                acquisition.is_some_and(|acquisition| acquisition.owner == owner)
                    || ownership.is_some_and(|own| own.owner == owner && !own.wanted)
            }
            Notification::Granted { .. } | Notification::Retry { .. } => !client.dead,
        }
    }

    /// Starts the hold of a client's next caller.
    pub(super) fn begin_hold(&mut self, config: &Config, name: u8, how: How) {
        let now = self.now();
        let Some(ownership) = &mut self.clients[usize::from(name)].ownership else {
            return;
        };
        if how == How::HandedOver {
            ownership.handovers_left = ownership.handovers_left.saturating_sub(1);
            ownership.handed_over += u8::from(ownership.wanted);
            if ownership.handed_over > ownership.handovers {
                self.broken = Some(Rule::HandoversLimited);
            }
        }
        if ownership.lost {
            self.broken = Some(Rule::NoHoldAfterLoss);
        }
        let owner = ownership.owner;
        let token = ownership.begin_hold(how, now);
        let is_above = if config.may_overtake() {
            // If two clients hold the lock, only the order of the grants counts.
            self.blocks.iter().any(|block| block.has(owner, token))
        } else {
            token > self.latest
        };
        if !is_above {
            self.broken = Some(Rule::TokensGrow);
        }
        self.latest = self.latest.max(token);
    }

    /// Returns whether the server granted the lock to another owner after it granted this token.
    pub(super) fn is_overtaken(&self, owner: Owner, token: Token) -> bool {
        let own = self.blocks.iter().position(|block| block.has(owner, token));
        own.is_some_and(|own| self.blocks[own..].iter().any(|block| block.owner != owner))
    }

    /// Returns whether no message is in flight and all clients are idle.
    pub(super) fn is_quiet(&self) -> bool {
        self.network.is_empty() && self.clients.iter().all(Client::is_idle)
    }

    /// Returns whether a new client would get the lock after one lease if all others died now.
    pub(super) fn becomes_free(&self) -> bool {
        let newcomer = Owner {
            client: u8::MAX,
            sequence: 0,
        };
        let mut server = self.server.clone();
        (0..)
            .zip(&self.clients)
            .for_each(|(name, _)| server.leave(name));
        server.pass(Config::LEASE);
        server.join(newcomer.client);
        let ask = crate::words::Acquire {
            claims: vec![Claim {
                key: KEY,
                owner: newcomer,
            }],
            lease: Config::LEASE,
            count: 1,
            waits: true,
            known: crate::words::Known::default(),
        };
        server.acquire(&ask, &mut Effects::default());
        server.holds(KEY, newcomer)
    }
}
