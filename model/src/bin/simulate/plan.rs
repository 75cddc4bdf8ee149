//! What a run does: its seed draws the clients, their options, and the faults. Each run has some of them only, so that
//! rare combinations are not hidden by frequent ones ("swarm testing", Groce et al., 2012).

use std::fmt;

use fastrand::Rng;

/// Defines the faults, with the rate of each if a run has it.
macro_rules! faults {
    ($($fault:ident: $name:literal, $from:literal..$to:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fault {
            $($fault,)+
        }

        impl Fault {
            pub(crate) const ALL: &[Self] = &[$(Self::$fault,)+];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$fault => $name,)+
                }
            }

            /// Returns its rate, drawn evenly over orders of magnitude.
            fn draw(self, rng: &mut Rng) -> u32 {
                match self {
                    $(Self::$fault => drawn(rng, $from, $to),)+
                }
            }
        }
    };
}

faults! {
    // How many of 10,000 messages, polls or bodies.
    RequestLost: "request lost", 10..1_500,
    ReplyLost: "reply lost", 10..1_500,
    EventLost: "notification lost", 10..9_000,
    Held: "message held", 10..500,
    Repeated: "request repeated", 10..500,
    Unsent: "request not sent", 10..500,
    Refused: "request refused", 5..100,
    Cancelled: "call cancelled", 50..2_000,
    Unpolled: "call not polled any more", 5..300,
    PolledEarly: "call polled early", 50..2_000,
    Slow: "executor slow", 50..1_000,
    Panicked: "body panicked", 50..1_000,
    // The mean pause in milliseconds.
    Paused: "client paused", 300..10_000,
    Died: "client died", 1_000..20_000,
    Closed: "client shut down", 1_000..20_000,
    Disconnected: "notifications interrupted", 300..10_000,
    Reported: "change falsely reported", 300..10_000,
    ServerPaused: "server paused", 1_000..20_000,
    ServerCleared: "server restarted empty", 2_000..20_000,
    ServerOlder: "older copy took over", 2_000..20_000,
    FenceLost: "fence evicted", 2_000..20_000,
    ClockAhead: "server's clock set ahead", 2_000..20_000,
    ClockBack: "server's clock set back", 2_000..20_000,
    Asked: "holder asked to release", 300..10_000,
    Taken: "lock taken by force", 300..10_000,
    // Whether it occurs.
    Drift: "clocks drift", 1..2,
    Beyond: "clock drifts beyond the margin", 1..2,
}

impl Fault {
    /// The first fault of each kind: of messages, calls, clients, servers, operators and clocks.
    const KINDS: [Self; 6] = [
        Self::RequestLost,
        Self::Cancelled,
        Self::Paused,
        Self::ServerPaused,
        Self::Asked,
        Self::Drift,
    ];

    fn kind(self) -> usize {
        Self::KINDS.iter().filter(|first| **first <= self).count() - 1
    }
}

/// Returns a number between these, evenly over orders of magnitude.
fn drawn(rng: &mut Rng, from: u32, to: u32) -> u32 {
    let (low, high) = (f64::from(from).ln(), f64::from(to).ln());
    let drawn = (low + rng.f64() * (high - low)).exp();
    // It is between the two.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let drawn = drawn.round() as u32;
    drawn
}

/// The kinds of worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// A few clients and one server.
    Server,
    /// 50 to 300 clients, one server, and one or two keys.
    Crowd,
    /// A few clients and five servers.
    Quorum,
    /// A few clients and one server, without faults. Nothing is excused.
    Calm,
}

impl World {
    pub(crate) const ALL: [Self; 4] = [Self::Server, Self::Crowd, Self::Quorum, Self::Calm];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Crowd => "crowd",
            Self::Quorum => "quorum",
            Self::Calm => "calm",
        }
    }

    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..10) {
            0 => Self::Calm,
            1 => Self::Crowd,
            2..5 => Self::Quorum,
            _ => Self::Server,
        }
    }
}

/// What the calls of a run may have, each in percent of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) never: u32,
    pub(crate) forever: u32,
    pub(crate) unrenewed: u32,
    pub(crate) max_hold: u32,
    pub(crate) at_least: u32,
    pub(crate) retain: u32,
    pub(crate) nests: u32,
    pub(crate) enters_others: u32,
    pub(crate) several: u32,
    pub(crate) keeps: u32,
    pub(crate) writes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) world: World,
    pub(crate) clients: usize,
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
    /// In milliseconds.
    pub(crate) leases: Vec<u32>,
    pub(crate) longest_wait: u32,
    pub(crate) longest_hold: u32,
    pub(crate) longest_retain: u32,
    pub(crate) counts_entries: bool,
    pub(crate) replicas: bool,
    pub(crate) two_connections: bool,
    pub(crate) local_handovers: usize,
    pub(crate) options: Options,
    /// The rate of each fault; zero for none.
    pub(crate) rates: Vec<u32>,
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng, world: Option<World>) -> Self {
        let world = world.unwrap_or_else(|| World::draw(rng));
        let is_crowd = world == World::Crowd;
        let some = |rng: &mut Rng, most: u32| {
            if rng.bool() { rng.u32(1..=most) } else { 0 }
        };
        let options = Options {
            never: some(rng, 30),
            forever: some(rng, 20),
            unrenewed: some(rng, 20),
            max_hold: some(rng, 10),
            at_least: some(rng, 10),
            retain: some(rng, 100),
            nests: some(rng, 40),
            enters_others: some(rng, 20),
            several: some(rng, 30),
            keeps: some(rng, 5),
            writes: some(rng, 60),
        };
        let leases = [[100, 300, 1_000, 3_000], [40, 100, 300, 1_000], [2_000; 4]];
        // Whole kinds of faults are left out, because some excuse what others break.
        let kinds = [(); Fault::KINDS.len()].map(|()| rng.bool());
        let mut rates: Vec<u32> = (Fault::ALL.iter())
            .map(|fault| {
                // With such a clock, no overlap counts.
                let one_of = if *fault == Fault::Beyond { 8 } else { 2 };
                let is_wanted = rng.u8(..one_of) == 0 && kinds[fault.kind()];
                if is_wanted { fault.draw(rng) } else { 0 }
            })
            .collect();
        if world == World::Calm {
            rates.fill(0);
        }
        Self {
            world,
            clients: if is_crowd {
                rng.usize(50..=300)
            } else {
                rng.usize(1..=6)
            },
            tasks: if is_crowd {
                rng.usize(1..=2)
            } else {
                rng.usize(1..=4)
            },
            keys: if is_crowd {
                rng.usize(1..=2)
            } else {
                rng.usize(1..=3)
            },
            leases: leases[rng.usize(..leases.len())].to_vec(),
            longest_wait: drawn(rng, 20, 10_000),
            longest_hold: drawn(rng, 1, 20_000),
            longest_retain: drawn(rng, 10, 60_000),
            counts_entries: rng.bool(),
            replicas: rng.u8(..8) == 0,
            two_connections: rng.bool(),
            local_handovers: rng.usize(..5),
            options,
            rates,
        }
    }

    pub(crate) fn rate(&self, fault: Fault) -> u32 {
        self.rates[fault as usize]
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.rate(fault) > 0
    }

    /// Returns the plans that have less than this one, those with much less first.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                plans.push(plan);
            }
        };
        add(&|plan| plan.rates.fill(0));
        add(&|plan| plan.options = Options::default());
        add(&|plan| plan.clients = plan.clients.div_ceil(2).max(1));
        add(&|plan| plan.clients = (plan.clients - 1).max(1));
        add(&|plan| plan.tasks = 1);
        add(&|plan| plan.tasks = (plan.tasks - 1).max(1));
        add(&|plan| plan.keys = 1);
        for fault in 0..Fault::ALL.len() {
            add(&|plan| plan.rates[fault] = 0);
        }
        let options: [fn(&mut Options) -> &mut u32; 11] = [
            |options| &mut options.never,
            |options| &mut options.forever,
            |options| &mut options.unrenewed,
            |options| &mut options.max_hold,
            |options| &mut options.at_least,
            |options| &mut options.retain,
            |options| &mut options.nests,
            |options| &mut options.enters_others,
            |options| &mut options.several,
            |options| &mut options.keeps,
            |options| &mut options.writes,
        ];
        for option in options {
            add(&|plan| *option(&mut plan.options) = 0);
        }
        add(&|plan| plan.counts_entries = false);
        add(&|plan| plan.replicas = false);
        add(&|plan| plan.two_connections = false);
        add(&|plan| plan.leases.truncate(1));
        plans
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            world,
            clients,
            tasks,
            keys,
            ..
        } = self;
        write!(
            f,
            "{}: {clients} clients with {tasks} tasks, {keys} keys",
            world.name()
        )?;
        write!(f, ", leases {:?} ms, {:?}", self.leases, self.options)?;
        for (fault, rate) in Fault::ALL.iter().zip(&self.rates) {
            if *rate > 0 {
                write!(f, ", {} ({rate})", fault.name())?;
            }
        }
        Ok(())
    }
}
