//! The state of the world.

use super::{
    Config, Faults, KEY, Time,
    client::Client,
    network::{Message, Network, Request},
    ownership::{How, Ownership, Tokens},
    resource::Resource,
};
use crate::{
    server::{Constants, Server},
    words::{Effects, Fenced, Notification, Owner, Renewal, Token},
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
    /// The token of the latest hold.
    pub(super) latest: Token,
    /// The rule that a step broke.
    pub(super) broken: Option<Rule>,
}

/// The tokens that an owner got with one fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenRange {
    owner: Owner,
    first: Token,
    last: Token,
}

impl TokenRange {
    pub(super) fn has(&self, owner: Owner, token: Token) -> bool {
        self.owner == owner && (self.first..=self.last).contains(&token)
    }
}

/// A rule that every step must obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Grants, renewals and holds have larger tokens than all earlier ones.
    TokensGrow,
    /// A renewal does not create a lock.
    RenewalsCreateNothing,
    /// No renewal is sent after the release.
    NoRenewalAfterRelease,
    /// No hold begins on an ownership whose loss is known.
    NoHoldAfterLoss,
    /// No release counts as done if another owner had the lock before it.
    NoReleaseAfterOthers,
    /// The number of local hand-overs is limited while other clients are known to wait.
    HandoversLimited,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        let constants = Constants {
            grace: Config::LEASE,
            silent: 1,
            queue: 1_000,
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
            tokens: Vec::new(),
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
            let ends = |renewal: &Renewal| {
                let owner = renewal.claim.owner;
                releasing.iter().any(|one| one.owner == owner)
            };
            if renewal.renewals.iter().any(ends) {
                self.broken = Some(Rule::NoRenewalAfterRelease);
            }
        }
        self.network.send(Message::Request { from, id, request });
    }

    /// Records the effects of a step of the server.
    pub(super) fn note(&mut self, config: &Config, effects: Effects) {
        let Effects {
            notifications,
            grants,
            renewed,
        } = effects;
        for grant in &grants {
            let now = self.server.now();
            for client in &mut self.clients {
                client.overtaken(grant.owner, now);
            }
        }
        let fences = grants.into_iter().map(|grant| (grant, false));
        for (Fenced { owner, fence }, is_renewed) in
            fences.chain(renewed.into_iter().map(|renewed| (renewed, true)))
        {
            let before = self.tokens.last().map_or(0, |tokens| tokens.last);
            let granted = Tokens::granted(fence, config.tokens);
            if granted.next <= before {
                self.broken = Some(Rule::TokensGrow);
            }
            self.tokens.push(TokenRange {
                owner,
                first: if is_renewed { before + 1 } else { granted.next },
                last: granted.last,
            });
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
            self.tokens.iter().any(|tokens| tokens.has(owner, token))
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
        let own = self.tokens.iter().position(|own| own.has(owner, token));
        own.is_some_and(|own| self.tokens[own..].iter().any(|other| other.owner != owner))
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
