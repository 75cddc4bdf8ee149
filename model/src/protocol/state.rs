//! The state of the world.

use super::{
    Config, Faults, KEY, Time,
    client::Client,
    network::{Message, Network, Request},
    resource::Resource,
};
use crate::{
    server::{Constants, Server},
    words::{Block, Effects, Owner, Token},
};

/// The state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) server: Server,
    pub(super) clients: Vec<Client>,
    pub(super) network: Network,
    pub(super) resource: Resource,
    /// What may still go wrong.
    pub(super) left: Faults,
    /// Every grant that the server made, in this order.
    pub(super) grants: Vec<Block>,
    /// What a step did that no step may do.
    pub(super) broken: Option<Rule>,
}

/// What no step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A grant with a token that is not above all earlier ones.
    TokensGrow,
    /// A renewal of a lock that was free.
    RenewalsCreateNothing,
    /// A renewal that was sent after the release.
    NoRenewalAfterRelease,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        // Long before the first token, the clock stood at one.
        let constants = Constants {
            grace: Config::LEASE,
            unheard: 1,
            queue: 1_000,
            block: 1,
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
            grants: Vec::new(),
            broken: None,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.server.now()
    }

    /// Nothing that comes after a broken rule says anything.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(super) fn client(&mut self, name: u8) -> &mut Client {
        &mut self.clients[usize::from(name)]
    }

    pub(super) fn believers(&self) -> impl Iterator<Item = &Client> {
        self.clients
            .iter()
            .filter(|client| client.believes(self.now()))
    }

    /// Sends a request of a client.
    pub(super) fn ask(&mut self, from: u8, id: u8, request: Request) {
        if let Request::Renew(renewal) = &request {
            let settling = self.clients[usize::from(from)].settling.iter();
            if settling
                .clone()
                .any(|settling| settling.owner == renewal.owner)
            {
                self.broken = Some(Rule::NoRenewalAfterRelease);
            }
        }
        self.network.send(Message::Request { from, id, request });
    }

    /// Takes down what the server did.
    pub(super) fn note(&mut self, effects: Effects) {
        for grant in effects.grants {
            if self
                .grants
                .last()
                .is_some_and(|last| grant.first <= last.last)
            {
                self.broken = Some(Rule::TokensGrow);
            }
            self.grants.push(grant);
            let now = self.server.now();
            for hold in self
                .clients
                .iter_mut()
                .filter_map(|client| client.hold.as_mut())
            {
                if hold.owner != grant.owner {
                    hold.overtaken.get_or_insert(now);
                }
            }
        }
        for news in effects.news {
            if !self.clients[usize::from(news.owner().client)].dead {
                self.network.send(Message::News(news));
            }
        }
    }

    /// Whether the server gave the lock to somebody else since.
    pub(super) fn is_overtaken(&self, owner: Owner, token: Token) -> bool {
        let made = |grant: &Block| grant.owner == owner && grant.last == token;
        let own = self.grants.iter().position(made);
        own.is_some_and(|own| self.grants[own..].iter().any(|grant| grant.owner != owner))
    }

    /// Whether nothing is under way and nobody has anything to do.
    pub(super) fn is_quiet(&self) -> bool {
        self.network.is_empty() && self.clients.iter().all(Client::is_idle)
    }

    /// Whether, if everybody died now, a newcomer would have the lock after one lease.
    pub(super) fn frees_itself(&self) -> bool {
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
            claims: vec![crate::words::Claim {
                key: KEY,
                owner: newcomer,
            }],
            lease: Config::LEASE,
            count: 1,
            waits: true,
        };
        server.acquire(&ask, &mut Effects::default());
        server.holds(KEY, newcomer)
    }
}
