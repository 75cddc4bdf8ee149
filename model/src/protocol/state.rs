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
    words::{Block, Effects, News, Owner, Token},
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
    /// All tokens that the server gave, in this order.
    pub(super) blocks: Vec<Block>,
    /// The token of the latest hold.
    pub(super) latest: Token,
    /// What a step did that no step may do.
    pub(super) broken: Option<Rule>,
}

/// What no step may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A grant, an extension or a hold with a token that is not above all earlier ones.
    TokensGrow,
    /// A renewal of a lock that was free.
    RenewalsCreateNothing,
    /// A renewal that was sent after the release.
    NoRenewalAfterRelease,
    /// A hold of an ownership that is known to be lost.
    NoHoldAfterLoss,
    /// More local hand-overs than those for which there is a budget, while others are known to wait.
    BudgetKept,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        // Long before the first token, the clock stood at one.
        let constants = Constants {
            grace: Config::LEASE,
            unheard: 1,
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
        let Effects {
            news,
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
        for news in news {
            if self.is_news(news) {
                self.network.send(Message::News(news));
            }
        }
    }

    /// Whether it changes anything where it arrives.
    fn is_news(&self, news: News) -> bool {
        let client = &self.clients[usize::from(news.owner().client)];
        match news {
            News::Wanted { owner, .. } => {
                let asked = client.asked.as_ref();
                let ownership = client.ownership.as_ref();
                asked.is_some_and(|asked| asked.owner == owner)
                    || ownership.is_some_and(|own| own.owner == owner && !own.wanted)
            }
            News::Granted { .. } | News::AskAgain { .. } => !client.dead,
        }
    }

    /// The next caller of a client begins its hold of what the client owns.
    pub(super) fn begin_hold(&mut self, config: &Config, name: u8, how: How) {
        let now = self.now();
        let Some(ownership) = &mut self.clients[usize::from(name)].ownership else {
            return;
        };
        if how == How::HandedOver {
            ownership.budget_left = ownership.budget_left.saturating_sub(1);
            ownership.handed_over += u8::from(ownership.wanted);
            if ownership.handed_over > ownership.budget {
                self.broken = Some(Rule::BudgetKept);
            }
        }
        if ownership.lost {
            self.broken = Some(Rule::NoHoldAfterLoss);
        }
        let owner = ownership.owner;
        let token = ownership.begin_hold(how, now);
        let is_above = if config.may_overtake() {
            // Two may believe: then only the order of the grants counts.
            self.blocks.iter().any(|block| block.has(owner, token))
        } else {
            token > self.latest
        };
        if !is_above {
            self.broken = Some(Rule::TokensGrow);
        }
        self.latest = self.latest.max(token);
    }

    /// Whether the server gave the lock to another owner since it gave this token.
    pub(super) fn is_overtaken(&self, owner: Owner, token: Token) -> bool {
        let own = self.blocks.iter().position(|block| block.has(owner, token));
        own.is_some_and(|own| self.blocks[own..].iter().any(|block| block.owner != owner))
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
