//! How large a world is explored, and what may go wrong in it.

use super::{Bug, ClientBug};
use crate::{server::ServerBug, words::Token};

/// Time in steps of the clock. A third of a lease is one step.
pub type Time = u64;

/// One world.
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
#[derive(Clone, Debug)]
pub struct Config {
    /// What it is called.
    pub name: &'static str,
    /// How many clients there are.
    pub clients: u8,
    /// How many callers of each client want the lock.
    pub callers: u8,
    /// How many entries a hold has in all.
    pub entries: u8,
    /// Whether each holder writes to the resource, once.
    pub writes: bool,
    /// Whether holders renew their lease.
    pub renews: bool,
    /// How many tokens a grant gives.
    pub block: Token,
    /// Whether owners ask for more tokens.
    pub extends: bool,
    /// For how long an ownership is retained after its last hold.
    pub retain: Time,
    /// When the world ends. It begins at 1.
    pub end: Time,
    /// Whether each client acts as soon as it is due, and no message takes longer than a step of the clock.
    /// Otherwise anything may take any time: a client may be paused in any state.
    pub prompt: bool,
    /// Whether the requests of a client are executed in the order of sending.
    pub in_order: bool,
    /// What may go wrong, and how often.
    pub faults: Faults,
    /// What is wrong.
    pub bug: Option<Bug>,
}

/// How often each fault happens at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A request is lost.
    pub lost_requests: u8,
    /// A reply is lost.
    pub lost_replies: u8,
    /// A notification is lost.
    pub lost_notifications: u8,
    /// A request or a message arrives twice.
    pub repeats: u8,
    /// A client stops waiting for a reply that may still arrive.
    pub time_outs: u8,
    /// A caller gives up.
    pub gives_up: u8,
    /// A client dies.
    pub crashes: u8,
    /// A client shuts down while it retains the lock.
    pub shut_downs: u8,
    /// The server dies and starts again, empty.
    pub restarts: u8,
    /// The server loses the last token.
    pub lost_tokens: u8,
    /// A caller that does not wait finds the lock taken.
    pub refused_tries: u8,
    /// An operator asks a holder to release: its body stops, and then it releases.
    pub release_requests: u8,
    /// An operator releases a lock in its holder's name.
    pub forced_releases: u8,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        lost_requests: 0,
        lost_replies: 0,
        lost_notifications: 0,
        repeats: 0,
        time_outs: 0,
        gives_up: 0,
        crashes: 0,
        shut_downs: 0,
        restarts: 0,
        lost_tokens: 0,
        refused_tries: 0,
        release_requests: 0,
        forced_releases: 0,
    };
}

impl Config {
    /// The lease that all clients request.
    pub const LEASE: Time = 3;
    /// How many local hand-overs there are while other clients wait, at the most.
    pub const LOCAL_HANDOVERS: u8 = 1;

    /// The smallest world: two clients, one caller each, anything may take any time.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            clients: 2,
            callers: 1,
            entries: 1,
            writes: false,
            renews: false,
            block: 2,
            extends: false,
            retain: 0,
            end: 5,
            prompt: false,
            in_order: false,
            faults: Faults::NONE,
            bug: None,
        }
    }

    /// A world in which clients act in time, and requests keep their order.
    #[must_use]
    pub fn prompt(name: &'static str) -> Self {
        Self {
            prompt: true,
            in_order: true,
            end: 16,
            ..Self::new(name)
        }
    }

    /// The same with so many clients of so many callers.
    #[must_use]
    pub fn of(self, clients: u8, callers: u8) -> Self {
        Self {
            clients,
            callers,
            ..self
        }
    }

    /// The same until another end. It begins at 1.
    #[must_use]
    pub fn until(self, end: Time) -> Self {
        Self { end, ..self }
    }

    /// The same with so many entries in each hold.
    #[must_use]
    pub fn entries(self, entries: u8) -> Self {
        Self { entries, ..self }
    }

    /// The same with renewals.
    #[must_use]
    pub fn renewing(self) -> Self {
        Self {
            renews: true,
            ..self
        }
    }

    /// The same with so many tokens for a grant.
    #[must_use]
    pub fn blocks(self, block: Token) -> Self {
        Self { block, ..self }
    }

    /// The same with owners that ask for more tokens.
    #[must_use]
    pub fn extending(self) -> Self {
        Self {
            extends: true,
            ..self
        }
    }

    /// The same with ownerships that are retained for so long.
    #[must_use]
    pub fn retaining(self, retain: Time) -> Self {
        Self { retain, ..self }
    }

    /// The same with writes.
    #[must_use]
    pub fn writing(self) -> Self {
        Self {
            writes: true,
            ..self
        }
    }

    /// The same with faults.
    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The same with a mistake.
    #[must_use]
    pub fn but(self, bug: Bug) -> Self {
        Self {
            bug: Some(bug),
            ..self
        }
    }

    pub(super) fn has(&self, bug: ClientBug) -> bool {
        self.bug == Some(Bug::Client(bug))
    }

    pub(super) fn server_bug(&self) -> Option<ServerBug> {
        match self.bug {
            Some(Bug::Server(bug)) => Some(bug),
            Some(Bug::Client(ClientBug::WantedUnnoticed)) => Some(ServerBug::WantedOnce),
            _ => None,
        }
    }

    /// Whether the lock may be granted to another owner while its holder relies on it.
    pub(super) fn may_overtake(&self) -> bool {
        self.faults.restarts + self.faults.forced_releases > 0
    }

    /// Whether nothing is lost for good, so that everything is released in the end.
    pub(super) fn is_tidy(&self) -> bool {
        self.in_order && self.faults.crashes + self.faults.restarts == 0
    }
}
