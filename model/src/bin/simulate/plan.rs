//! Draws a run from its seed: the clients, their options, and the faults. Each run has some of them only, so that
//! rare combinations are not hidden by frequent ones ("swarm testing", Groce et al., 2012).

use std::{fmt, ops::Index};

use clap::ValueEnum;
use fastrand::Rng;

/// What a part of a plan is about. Whole kinds of faults are left out, because some excuse what others break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A number of clients or the like, or a time in milliseconds. Every run has it.
    Size,
    /// An option, in percent of the calls.
    Option,
    /// How many of 10,000 messages, or steps of a call.
    OfMessages,
    OfCalls,
    /// The mean pause in milliseconds.
    OfClients,
    OfServers,
    OfOperators,
    /// Whether it occurs.
    OfClocks,
}

/// What a fault may do, which excuses what is broken otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Requests fail.
    Fails,
    /// Clients, servers or messages stand still for longer than a renewal takes.
    Stalls,
    /// Grants are late.
    Delays,
    /// A server keeps a lock whose owner has gone; or a server that is in the minority.
    Leaves,
    LeavesOfMinority,
    /// A server executes a request for which its client has no reply, or forgets one.
    Repeats,
}

/// Defines the parts of a plan: the kind, in how many runs (one of …), between which numbers, and the effects.
macro_rules! parts {
    ($($part:ident: $kind:ident, 1 of $of:literal, $from:literal..=$to:literal $(, $effect:ident)*;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Part {
            $($part,)+
        }

        impl Part {
            pub(crate) const ALL: &[Self] = &[$(Self::$part,)+];
        }

        /// The parts with their kinds, in how many runs they are, between which numbers, and their effects.
        const PARTS: &[(Part, Kind, u8, (u32, u32), &[Effect])] =
            &[$((Part::$part, Kind::$kind, $of, ($from, $to), &[$(Effect::$effect),*]),)+];
    };
}

parts! {
    Clients: Size, 1 of 1, 1..=6;
    Tasks: Size, 1 of 1, 1..=12;
    Keys: Size, 1 of 1, 1..=3;
    ShortestLease: Size, 1 of 1, 40..=2_000;
    Leases: Size, 1 of 1, 1..=4;
    LongestWait: Size, 1 of 1, 20..=30_000;
    LongestHold: Size, 1 of 1, 1..=20_000;
    LongestRetain: Size, 1 of 1, 10..=60_000;
    LocalHandovers: Size, 1 of 1, 0..=4;
    CountsEntries: Option, 1 of 2, 1..=1;
    Replicas: Option, 1 of 8, 1..=1;
    TwoConnections: Option, 1 of 2, 1..=1;
    Days: Option, 1 of 6, 1..=1;
    NeverRenewed: Option, 1 of 8, 100..=100;
    Unrenewed: Option, 1 of 2, 1..=20;
    NeverWaits: Option, 1 of 2, 1..=30;
    WaitsForever: Option, 1 of 2, 1..=20;
    MaxHold: Option, 1 of 2, 1..=10;
    MinHold: Option, 1 of 2, 1..=10;
    Retains: Option, 1 of 2, 1..=100;
    Nests: Option, 1 of 2, 1..=40;
    EntersOthers: Option, 1 of 2, 1..=20;
    SeveralKeys: Option, 1 of 2, 1..=90;
    KeepsEntries: Option, 1 of 2, 1..=5;
    // Shared locks, but for those of `Modes`: permits are refused on a quorum.
    Shares: Option, 1 of 2, 30..=80;
    Downgrades: Option, 1 of 2, 1..=60;
    Writes: Option, 1 of 2, 1..=60;
    RequestLost: OfMessages, 1 of 2, 10..=1_500, Fails, Delays, LeavesOfMinority;
    ReplyLost: OfMessages, 1 of 2, 10..=1_500, Fails, Delays;
    NotificationLost: OfMessages, 1 of 2, 10..=9_000, Delays;
    MessageHeld: OfMessages, 1 of 2, 10..=500, Fails, Stalls, Delays, Leaves;
    RequestRepeated: OfMessages, 1 of 2, 10..=500, Delays, Leaves, Repeats;
    RequestNotSent: OfMessages, 1 of 2, 10..=500, Fails, Delays, LeavesOfMinority;
    RequestRefused: OfMessages, 1 of 2, 5..=100, Fails, Delays, Leaves, Repeats;
    CallCancelled: OfCalls, 1 of 2, 50..=2_000;
    CallNotPolled: OfCalls, 1 of 2, 5..=300, Fails, Delays;
    CallPolledEarly: OfCalls, 1 of 2, 50..=2_000;
    ExecutorSlow: OfCalls, 1 of 2, 50..=1_000, Fails, Stalls, Delays;
    BodyPanicked: OfCalls, 1 of 2, 50..=1_000;
    ClientPaused: OfClients, 1 of 2, 300..=10_000, Fails, Stalls, Delays;
    ClientDied: OfClients, 1 of 2, 1_000..=20_000, Delays;
    ClientShutDown: OfClients, 1 of 2, 1_000..=20_000, Fails, Delays;
    NotificationsInterrupted: OfClients, 1 of 2, 300..=10_000, Delays;
    ChangeFalselyReported: OfClients, 1 of 2, 300..=10_000, Delays;
    ServerPaused: OfServers, 1 of 2, 1_000..=20_000, Fails, Stalls, Delays, LeavesOfMinority;
    ServerRestartedEmpty: OfServers, 1 of 2, 2_000..=20_000, Delays;
    OlderCopyTookOver: OfServers, 1 of 2, 2_000..=20_000, Delays, Leaves, Repeats;
    FenceEvicted: OfServers, 1 of 2, 2_000..=20_000, Delays;
    ClockSetAhead: OfServers, 1 of 2, 2_000..=20_000, Delays, Leaves;
    ClockSetBack: OfServers, 1 of 2, 2_000..=20_000, Delays, Leaves;
    HolderAsked: OfOperators, 1 of 2, 300..=10_000;
    LockTakenByForce: OfOperators, 1 of 2, 300..=10_000;
    LockDeleted: OfOperators, 1 of 2, 300..=10_000;
    ClocksDrift: OfClocks, 1 of 2, 1..=1;
    // With such a clock, no overlap counts.
    ClockBeyondTheMargin: OfClocks, 1 of 8, 1..=1;
    // The last parts were added later, so that existing seeds draw the same numbers for the others.
    MasterReplaced: OfServers, 1 of 3, 11_000..=20_000, Fails, Delays, Leaves, Repeats;
    Extends: Option, 1 of 2, 1..=60;
    Detaches: Option, 1 of 3, 1..=20;
    // Calls are polled as soon as they are woken, in this order.
    PolledAtOnce: Option, 1 of 2, 1..=1;
}

impl Part {
    /// Returns all faults.
    pub(crate) fn faults() -> impl Iterator<Item = Self> {
        let faults = PARTS.iter().filter(|(_, kind, ..)| *kind > Kind::Option);
        faults.map(|(part, ..)| *part)
    }

    pub(crate) fn kind(self) -> Kind {
        PARTS[self as usize].1
    }

    /// Returns whether it may do this.
    pub(crate) fn may(self, effect: Effect) -> bool {
        PARTS[self as usize].4.contains(&effect)
    }
}

/// In words: `ServerPaused` is `server paused`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        let words = name.split_inclusive(|_: char| true).map(|letter| {
            let is_first = letter.starts_with(char::is_uppercase);
            if is_first {
                format!(" {}", letter.to_lowercase())
            } else {
                letter.to_owned()
            }
        });
        f.pad(words.collect::<String>().trim_start())
    }
}

/// Returns a number between these, evenly over orders of magnitude.
fn drawn(rng: &mut Rng, from: u32, to: u32) -> u32 {
    let (low, high) = (f64::from(from + 1).ln(), f64::from(to + 1).ln());
    let drawn = (low + rng.f64() * (high - low)).exp() - 1.0;
    // It is between the two.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let drawn = drawn.round() as u32;
    drawn
}

/// The largest number of permits that a call names.
pub(crate) const MOST_PERMITS: u32 = 4;

/// The kinds of worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorldKind {
    /// A few clients and one server.
    Server,
    /// 50 to 300 clients, one server, and one or two keys.
    Crowd,
    /// A few clients and five servers.
    Quorum,
    /// A few clients and one server, without faults. Nothing is excused.
    Calm,
    /// Like `Server`, with shared locks and permits.
    Modes,
}

impl WorldKind {
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..10) {
            0 => Self::Calm,
            1 => Self::Crowd,
            2..4 => Self::Quorum,
            4..6 => Self::Modes,
            _ => Self::Server,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) world: WorldKind,
    /// The number of each part; zero for an option or a fault that the run does not have.
    numbers: Vec<u32>,
    /// Whether clients stay at a master that was replaced until it is demoted.
    pub(crate) stays: bool,
}

impl Index<Part> for Plan {
    type Output = u32;

    fn index(&self, part: Part) -> &u32 {
        &self.numbers[part as usize]
    }
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng, world: Option<WorldKind>) -> Self {
        let world = world.unwrap_or_else(|| WorldKind::draw(rng));
        let mut kinds = [true; Kind::OfClocks as usize + 1];
        kinds[Kind::OfMessages as usize..].fill_with(|| world != WorldKind::Calm && rng.bool());
        let mut draw = |kind: Kind, of: u8, (from, to): (u32, u32)| {
            let is_part = kinds[kind as usize] && rng.u8(..of) == 0;
            if is_part { drawn(rng, from, to) } else { 0 }
        };
        let mut numbers: Vec<u32> = PARTS
            .iter()
            .map(|(_, kind, of, range, _)| draw(*kind, *of, *range))
            .collect();
        if world == WorldKind::Crowd {
            numbers[Part::Clients as usize] = rng.u32(50..=300);
            for part in [Part::Tasks, Part::Keys] {
                numbers[part as usize] = rng.u32(1..=2);
            }
        }
        if world == WorldKind::Quorum {
            // A new fence is ahead of the clock by 65 ms. A lease that ends before may be followed by a smaller fence.
            // If tokens are used up quickly, fences run further ahead, and a detached lock brings none of them to the members.
            let detaches = numbers[Part::Detaches as usize] > 0;
            let shortest = &mut numbers[Part::ShortestLease as usize];
            *shortest = (*shortest).max(if detaches { 1_000 } else { 100 });
        }
        numbers[Part::Shares as usize] = match world {
            WorldKind::Modes => 75,
            WorldKind::Quorum => numbers[Part::Shares as usize],
            _ => 0,
        };
        if world == WorldKind::Quorum {
            numbers[Part::MasterReplaced as usize] = 0;
        }
        let stays = false;
        Self {
            world,
            numbers,
            stays,
        }
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self[part] > 0
    }

    pub(crate) fn has_any(&self, parts: &[Part]) -> bool {
        parts.iter().any(|part| self.has(*part))
    }

    /// Returns whether a fault of this run may do this.
    pub(crate) fn may(&self, effect: Effect) -> bool {
        let mut parts = PARTS
            .iter()
            .filter(|(.., effects)| effects.contains(&effect));
        parts.any(|(part, ..)| self.has(*part))
    }

    /// Returns a size.
    pub(crate) fn size(&self, part: Part) -> usize {
        usize::try_from(self[part]).unwrap_or(usize::MAX)
    }

    /// Returns by how much leases, waits, holds, and the pauses between faults are longer.
    pub(crate) fn scale(&self) -> u32 {
        if self.has(Part::Days) { 20_000 } else { 1 }
    }

    /// Returns the leases of its calls in milliseconds, in ascending order.
    pub(crate) fn leases(&self) -> Vec<u32> {
        let lease = |n: u32| (self[Part::ShortestLease] * 3u32.pow(n)).min(3_000) * self.scale();
        (0..self[Part::Leases]).map(lease).collect()
    }

    pub(crate) fn longest_lease(&self) -> u32 {
        self.leases().last().copied().unwrap_or_default()
    }

    /// Returns the plans that have less than this one, those with much less first.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let less = |is_less: &dyn Fn(Kind) -> bool| {
            let mut plan = self.clone();
            let parts = PARTS.iter().filter(|(_, kind, ..)| is_less(*kind));
            parts.for_each(|(part, ..)| plan.numbers[*part as usize] = 0);
            plan
        };
        let mut plans = vec![
            less(&|kind| kind > Kind::Option),
            less(&|kind| kind == Kind::Option),
        ];
        for (part, kind, _, (from, _), _) in PARTS {
            let number = self[*part];
            let (least, half) = if *kind == Kind::Size {
                (*from, number / 2)
            } else {
                (0, 0)
            };
            for smaller in [least, half, number.saturating_sub(1)] {
                let mut plan = self.clone();
                plan.numbers[*part as usize] = smaller.max(least);
                plans.push(plan);
            }
        }
        plans.dedup();
        plans.retain(|plan| plan != self);
        plans
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.world.name())?;
        let present = PARTS.iter().filter(|(part, ..)| self.has(*part));
        present
            .into_iter()
            .try_for_each(|(part, ..)| write!(f, ", {part} {}", self[*part]))
    }
}
