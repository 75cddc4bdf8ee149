//! The size of a world, and the faults that are possible in it.

use std::time::Duration;

use crate::{
    key::Key,
    lease,
    machine::WantedLock,
    mode::LockMode,
    options::{LockOptions, Site, Wait},
    server::tolerate,
};

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(super) const TOKENS: u64 = 2;

/// Time in steps of the clock. Half of a lease takes one step.
pub type Time = u64;

/// One world.
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the world.
    pub name: &'static str,
    /// The callers of each client.
    pub clients: Vec<Vec<Caller>>,
    /// The number of entries of a hold.
    pub entries: u8,
    /// Whether each holder writes to the resource, once.
    pub writes: bool,
    /// The end of the world. It begins at 1.
    pub end: Time,
    /// Whether each client acts as soon as it is due, and no message takes longer than a step of
    /// the clock. Otherwise anything may take any time: a client may pause in any state.
    pub prompt: bool,
    /// Whether the requests of a client run in the order in which they were sent.
    pub in_order: bool,
    /// Whether the server counts nested entries.
    pub counts_entries: bool,
    /// Whether replies to renewals report that a lock is wanted.
    pub renewals_report: bool,
    /// The possible faults, and their numbers.
    pub faults: Faults,
    /// Whether messages report only once that a lock is wanted.
    pub notifies_once: bool,
}

/// A caller, which asks once. Durations in steps of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The numbers of its keys, in ascending order.
    pub keys: &'static [u8],
    /// Which other holders it tolerates.
    pub mode: LockMode,
    /// The lease.
    pub lease: Time,
    /// The longest wait: `None` is unlimited, and zero is one attempt.
    pub wait: Option<Time>,
    /// Whether its lease is renewed.
    pub renewed: bool,
    /// The `max_hold` of its hold.
    pub max_hold: Option<Time>,
    /// How long the lock stays taken at least.
    pub min_hold: Option<Time>,
    /// How long the client retains the ownership.
    pub retain: Time,
    /// Whether it may share its exclusive lock later.
    pub downgrades: bool,
}

impl Caller {
    /// A caller that waits until it has the lock of one key.
    pub const PLAIN: Self = Self {
        keys: &[0],
        mode: LockMode::Exclusive,
        lease: Config::LEASE,
        wait: None,
        renewed: true,
        max_hold: None,
        min_hold: None,
        retain: 0,
        downgrades: false,
    };

    /// Returns a lock as the caller wants it.
    pub(super) fn wants(&self, key: Key) -> WantedLock {
        WantedLock {
            key,
            mode: self.mode,
        }
    }

    pub(super) fn terms(&self, lease: Time) -> LockOptions {
        LockOptions {
            mode: self.mode,
            lease: duration(lease),
            wait: match self.wait {
                None => Wait::Forever,
                Some(0) => Wait::Never,
                Some(wait) => Wait::For(duration(wait)),
            },
            watchdog: self.renewed,
            max_hold: self.max_hold.map(duration),
            min_hold: self.min_hold.map(duration),
            retain: duration(self.retain),
            site: Site::default(),
        }
    }
}

pub(super) fn duration(steps: Time) -> Duration {
    Duration::from_millis(steps * Config::STEP)
}

pub(super) fn time(steps: Time) -> lease::Time {
    lease::Time::from(duration(steps))
}

/// Defines the faults, and their numbers.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The largest number of each fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Faults {
            $($(#[$doc])* pub $name: u8,)+
        }

        impl Faults {
            /// No faults.
            pub const NONE: Self = Self { $($name: 0,)+ };
        }
    };
}

faults! {
    /// A request is lost.
    lost_requests,
    /// A reply is lost.
    lost_replies,
    /// A notification is lost.
    lost_notifications,
    /// A request or a message arrives twice.
    repeats,
    /// A request fails before it reaches the server.
    failures,
    /// A client stops waiting for a reply that may still arrive.
    time_outs,
    /// A caller gives up.
    gives_up,
    /// A call is polled without having been woken.
    early_polls,
    /// A call is not polled any more, and dropped later.
    unpolled,
    /// A guard is dropped, so that the background releases.
    drops,
    /// A client dies.
    crashes,
    /// A client shuts down.
    shut_downs,
    /// The server restarts without data.
    restarts,
    /// The server loses the last fence.
    lost_fences,
    /// A server takes over with an older copy of the data, which lacks the last grant.
    missed_grants,
    /// A caller that does not wait finds the lock taken.
    refused_tries,
    /// An operator asks a holder to release: its body stops, and then it releases.
    release_requests,
    /// An operator releases a lock for its holder.
    forced_releases,
    /// A change of the lock is reported to a client, or reports are missed.
    reports,
}

impl Config {
    /// The lease that callers request.
    pub const LEASE: Time = 2;
    /// The largest number of local hand-overs while other clients wait.
    pub const LOCAL_HANDOVERS: usize = 1;
    /// The milliseconds of a step.
    pub(super) const STEP: u64 = 600;

    /// The smallest world: two clients with one caller each, and no limits on time.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            clients: vec![vec![Caller::PLAIN]; 2],
            entries: 1,
            writes: false,
            end: 3,
            prompt: false,
            in_order: false,
            counts_entries: true,
            renewals_report: true,
            faults: Faults::NONE,
            notifies_once: false,
        }
    }

    /// A world in which clients act at once, and requests keep their order.
    #[must_use]
    pub fn prompt(name: &'static str) -> Self {
        Self {
            prompt: true,
            in_order: true,
            end: 9,
            ..Self::new(name)
        }
    }

    /// Returns whether an exclusive lock may be shared later.
    #[must_use]
    pub fn downgrades(&self) -> bool {
        self.callers().any(|caller| caller.downgrades)
    }

    /// Returns whether callers of two clients share a lock.
    #[must_use]
    pub fn meet(&self) -> bool {
        let shares = |callers: &&Vec<Caller>| {
            let mut modes = callers.iter().map(|caller| caller.mode);
            modes.any(|mode| tolerate(mode, mode))
        };
        self.clients.iter().filter(shares).count() > 1
    }

    /// Returns whether two callers of a client share a lock.
    #[must_use]
    pub fn joins(&self) -> bool {
        let is_shared = |caller: &&Caller| caller.mode == LockMode::Shared;
        let joins = |callers: &Vec<Caller>| callers.iter().filter(is_shared).count() > 1;
        self.clients.iter().any(joins)
    }

    /// Returns whether holders may share a lock.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.callers()
            .any(|caller| caller.mode != LockMode::Exclusive)
    }

    /// Lets anything take any time.
    #[must_use]
    pub fn at_any_time(self) -> Self {
        Self {
            prompt: false,
            in_order: false,
            ..self
        }
    }

    /// Sets the number of callers of each client.
    #[must_use]
    pub fn of(self, callers: &[usize]) -> Self {
        let clients = callers.iter().map(|callers| vec![Caller::PLAIN; *callers]);
        Self {
            clients: clients.collect(),
            ..self
        }
    }

    /// Changes all callers.
    #[must_use]
    pub fn each(mut self, change: impl Fn(&mut Caller)) -> Self {
        self.clients.iter_mut().flatten().for_each(change);
        self
    }

    /// Changes one caller.
    #[must_use]
    pub fn one(mut self, client: usize, caller: usize, change: impl Fn(&mut Caller)) -> Self {
        change(&mut self.clients[client][caller]);
        self
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

    /// Disables renewals.
    #[must_use]
    pub fn unrenewed(self) -> Self {
        self.each(|caller| caller.renewed = false)
    }

    /// Sets the duration of retentions.
    #[must_use]
    pub fn retaining(self, retain: Time) -> Self {
        self.each(|caller| caller.retain = retain)
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

    pub(super) fn caller(&self, client: u8, at: usize) -> &Caller {
        &self.clients[usize::from(client)][at]
    }

    pub(super) fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.clients.iter().flatten()
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> u8 {
        let last = self.callers().flat_map(|caller| caller.keys).max();
        last.map_or(0, |last| last + 1)
    }

    /// Returns whether the lock may be granted to another owner while its holder relies on it.
    pub(super) fn may_overtake(&self) -> bool {
        self.faults.restarts + self.faults.forced_releases > 0
    }

    /// Returns whether nothing is lost for good, so that everything is released in the end.
    pub(super) fn is_tidy(&self) -> bool {
        let Faults {
            crashes, restarts, ..
        } = self.faults;
        self.prompt && self.in_order && crashes + restarts == 0
    }
}
