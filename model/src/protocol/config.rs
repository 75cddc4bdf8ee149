//! The size of a world, and its possible faults.

use super::{Bug, ClientBug};
use crate::{server::ServerBug, words::Token};

/// Time in steps of the clock. A third of a lease takes one step.
pub type Time = u64;

/// One world.
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the world.
    pub name: &'static str,
    /// The number of clients.
    pub clients: u8,
    /// The number of callers of each client.
    pub callers: u8,
    /// The number of entries of a hold.
    pub entries: u8,
    /// Whether each holder writes to the resource, once.
    pub writes: bool,
    /// Whether holders renew their lease.
    pub renews: bool,
    /// The number of tokens of a fence.
    pub tokens: Token,
    /// Whether owners whose tokens run low ask for a new fence.
    pub refences: bool,
    /// The duration of a retention after the last hold.
    pub retain: Time,
    /// The end of the world. It begins at 1.
    pub end: Time,
    /// Whether each client acts as soon as it is due, and no message takes longer than a step of
    /// the clock. Otherwise anything may take any time: a client may pause in any state.
    pub prompt: bool,
    /// Whether the requests of a client run in the order in which they were sent.
    pub in_order: bool,
    /// The possible faults, and their numbers.
    pub faults: Faults,
    /// The bug, if any.
    pub bug: Option<Bug>,
}

/// The largest number of each fault.
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
    /// A caller gives up waiting.
    pub gives_up: u8,
    /// A client dies.
    pub crashes: u8,
    /// A client shuts down while it retains the lock.
    pub shut_downs: u8,
    /// The server restarts without data.
    pub restarts: u8,
    /// The server loses the last fence.
    pub lost_fences: u8,
    /// A server takes over with an older copy of the data, which lacks the last grant.
    pub missed_grants: u8,
    /// A caller that does not wait finds the lock taken.
    pub refused_tries: u8,
    /// An operator asks a holder to release: its body stops, and then it releases.
    pub release_requests: u8,
    /// An operator releases a lock for its holder.
    pub forced_releases: u8,
}

impl Faults {
    /// No faults.
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
        lost_fences: 0,
        missed_grants: 0,
        refused_tries: 0,
        release_requests: 0,
        forced_releases: 0,
    };
}

impl Config {
    /// The lease that all clients request.
    pub const LEASE: Time = 3;
    /// The largest number of local hand-overs while other clients wait.
    pub const LOCAL_HANDOVERS: u8 = 1;

    /// The smallest world: two clients with one caller each, and no limits on time.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            clients: 2,
            callers: 1,
            entries: 1,
            writes: false,
            renews: false,
            tokens: 2,
            refences: false,
            retain: 0,
            end: 5,
            prompt: false,
            in_order: false,
            faults: Faults::NONE,
            bug: None,
        }
    }

    /// A world in which clients act at once, and requests keep their order.
    #[must_use]
    pub fn prompt(name: &'static str) -> Self {
        Self {
            prompt: true,
            in_order: true,
            end: 16,
            ..Self::new(name)
        }
    }

    /// Sets the numbers of clients and of their callers.
    #[must_use]
    pub fn of(self, clients: u8, callers: u8) -> Self {
        Self {
            clients,
            callers,
            ..self
        }
    }

    /// Sets the end. The world begins at 1.
    #[must_use]
    pub fn until(self, end: Time) -> Self {
        Self { end, ..self }
    }

    /// Sets the number of entries in each hold.
    #[must_use]
    pub fn entries(self, entries: u8) -> Self {
        Self { entries, ..self }
    }

    /// Enables renewals.
    #[must_use]
    pub fn renewing(self) -> Self {
        Self {
            renews: true,
            ..self
        }
    }

    /// Sets the number of tokens of a fence.
    #[must_use]
    pub fn tokens(self, tokens: Token) -> Self {
        Self { tokens, ..self }
    }

    /// Lets owners ask for new fences.
    #[must_use]
    pub fn refencing(self) -> Self {
        Self {
            refences: true,
            ..self
        }
    }

    /// Sets the duration of retentions.
    #[must_use]
    pub fn retaining(self, retain: Time) -> Self {
        Self { retain, ..self }
    }

    /// Enables writes.
    #[must_use]
    pub fn writing(self) -> Self {
        Self {
            writes: true,
            ..self
        }
    }

    /// Sets the faults.
    #[must_use]
    pub fn with(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Adds a bug.
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

    /// Returns whether the lock may be granted to another owner while its holder relies on it.
    pub(super) fn may_overtake(&self) -> bool {
        self.faults.restarts + self.faults.forced_releases > 0
    }

    /// Returns whether nothing is lost for good, so that everything is released in the end.
    pub(super) fn is_tidy(&self) -> bool {
        self.in_order && self.faults.crashes + self.faults.restarts == 0
    }
}
