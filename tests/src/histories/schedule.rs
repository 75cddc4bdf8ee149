//! The faults and their times, derived from the seed before anything runs.
//!
//! Faults come in lanes, one after the other in each. The server with its data has a lane. Each
//! process has a lane for its network and one for itself. Shared proxies have a lane, too. Lanes
//! are independent, so their faults overlap by chance.

use std::{ops::Range, time::Duration};

use fastrand::Rng;

use super::record::FaultKind::{
    self, AllFlushed, BlackHole, ClientsKilled, ConnectionsHalfClosed, ConnectionsRefused,
    ConnectionsReset, ConnectionsSilenced, EverySecondSilenced, LockDeleted, MasterCutOff,
    MasterHandedOver, MasterKilled, MasterPaused, MasterReplaced, MasterUnseen, ProcessKilled,
    ProcessPaused, ProcessRetired, RepliesDelayed, RepliesDropped, RepliesHeld, RepliesSwallowed,
    RequestsDropped, RequestsHeld, RequestsSwallowed, RowKept, ScriptsFlushed, ServerKilled,
    ServerPaused, ServerRestarted, ServerSlowed, SessionPaused, SlotMoved,
};
use rlock_testkit::MASTERS;

/// One fault, and the pause before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) pause: Duration,
    pub(super) kind: FaultKind,
    /// The duration of the fault, or the delay that it causes.
    pub(super) lasts: Duration,
    /// The number of lost messages, or of the affected key.
    pub(super) number: u32,
    /// The servers that it affects, directly or by their proxies.
    pub(super) servers: Vec<usize>,
}

/// Consecutive faults.
pub(super) type Lane = Vec<Step>;

/// All faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The lanes of servers, which are independent, too.
    pub(super) servers: Vec<Lane>,
    /// A lane for each process's network.
    pub(super) networks: Vec<Lane>,
    /// The lane of shared proxies.
    pub(super) fronts: Lane,
    pub(super) processes: Vec<Lane>,
}

/// A kind of fault: its frequency relative to others, and its duration in milliseconds.
type Choice = (FaultKind, u32, Range<u64>);

const SERVER: [Choice; 6] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 4, 0..1),
    (LockDeleted, 8, 0..1),
    (AllFlushed, 2, 0..1),
    (ServerPaused, 5, 50..2_500),
    (ServerKilled, 2, 0..1_000),
];

/// Of a master with Sentinels. A short pause does not trigger a failover.
const SENTINEL: [Choice; 8] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 3, 0..1),
    (LockDeleted, 4, 0..1),
    (AllFlushed, 1, 0..1),
    (ServerPaused, 4, 50..350),
    (MasterReplaced, 6, 0..6_000),
    (MasterKilled, 4, 0..1_000),
    (MasterPaused, 3, 2_500..5_000),
];

/// Of the masters of a cluster. A short pause does not trigger a failover.
const CLUSTER: [Choice; 9] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 3, 0..1),
    (LockDeleted, 4, 0..1),
    (AllFlushed, 1, 0..1),
    (ServerPaused, 4, 50..400),
    (MasterKilled, 4, 0..1_000),
    (MasterPaused, 3, 2_500..5_000),
    (MasterHandedOver, 5, 0..1),
    (SlotMoved, 10, 0..1),
];

/// The number of members of a quorum.
pub(super) const VOTERS: usize = 5;

/// Of each member of a quorum.
const QUORUM: [Choice; 8] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 3, 0..1),
    (LockDeleted, 4, 0..1),
    (AllFlushed, 1, 0..1),
    (ServerPaused, 6, 50..2_500),
    (ServerSlowed, 3, 200..2_000),
    (ServerRestarted, 8, 0..2_000),
    (ServerKilled, 2, 0..1_000),
];

/// Of a Postgres server, which keeps what it has granted when it is killed.
const POSTGRES: [Choice; 7] = [
    (ClientsKilled, 5, 0..1),
    (LockDeleted, 4, 0..1),
    (AllFlushed, 1, 0..1),
    (ServerPaused, 4, 50..2_500),
    (SessionPaused, 5, 50..2_500),
    (RowKept, 4, 50..2_500),
    (ServerRestarted, 5, 0..1_000),
];

const NETWORK: [Choice; 11] = [
    (ConnectionsReset, 5, 0..1),
    (ConnectionsHalfClosed, 3, 0..1),
    (ConnectionsRefused, 2, 50..1_000),
    (RepliesDropped, 8, 0..300),
    (RequestsDropped, 6, 0..300),
    (RepliesDelayed, 5, 5..400),
    (BlackHole, 3, 100..2_500),
    (RequestsSwallowed, 2, 100..1_500),
    (RepliesSwallowed, 2, 100..1_500),
    (RequestsHeld, 4, 50..2_000),
    (RepliesHeld, 4, 50..2_000),
];

/// Of the clients' proxy of a cluster node, and of its replica. Nodes connect to each other
/// directly.
const NODE_FRONT: [Choice; 13] = [
    (ConnectionsReset, 4, 0..1),
    (ConnectionsHalfClosed, 3, 0..1),
    (ConnectionsRefused, 3, 50..2_000),
    (ConnectionsSilenced, 4, 100..3_000),
    (EverySecondSilenced, 4, 100..3_000),
    (RepliesDropped, 4, 0..300),
    (RequestsDropped, 4, 0..300),
    (RepliesDelayed, 3, 5..400),
    // From less than the shortest lease to more than the longest.
    (BlackHole, 6, 100..4_000),
    (RequestsSwallowed, 4, 100..3_000),
    (RepliesSwallowed, 4, 100..3_000),
    (RequestsHeld, 4, 50..2_000),
    (RepliesHeld, 4, 50..2_000),
];

/// Of the proxy that clients, Sentinels and the replica share. Temporary faults do not trigger a
/// failover.
const MASTER_FRONT: [Choice; 15] = [
    (ConnectionsReset, 4, 0..1),
    (ConnectionsHalfClosed, 3, 0..1),
    (ConnectionsRefused, 2, 50..900),
    (ConnectionsSilenced, 2, 50..900),
    (EverySecondSilenced, 3, 50..900),
    (RepliesDropped, 3, 0..300),
    (RequestsDropped, 3, 0..300),
    (RepliesDelayed, 3, 5..250),
    (BlackHole, 4, 50..900),
    (RequestsSwallowed, 3, 50..900),
    (RepliesSwallowed, 3, 50..900),
    (RequestsHeld, 3, 50..900),
    (RepliesHeld, 3, 50..900),
    (MasterCutOff, 5, 0..3_000),
    (MasterUnseen, 5, 0..2_000),
];

const PROCESS: [Choice; 3] = [
    (ProcessKilled, 3, 0..1),
    // From less than the shortest lease to more than the longest.
    (ProcessPaused, 6, 100..3_500),
    (ProcessRetired, 1, 0..1),
];

/// Of a process with an embedded store.
const EMBEDDED: [Choice; 1] = [(ProcessPaused, 1, 50..2_500)];

impl Schedule {
    /// Returns faults for this long, on this many processes.
    pub(super) fn of_servers(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        Self::of(
            seed,
            lasts,
            processes,
            &[Pace::of(&SERVER, 300..2_500, keys)],
        )
    }

    /// Like [`of_servers`](Self::of_servers), with a master and its replica.
    pub(super) fn of_sentinels(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let pace = Pace::of(&SENTINEL, 500..4_000, keys);
        let front = Pace {
            servers: 2,
            ..Pace::of(&MASTER_FRONT, 100..1_500, 1)
        };
        Self::of(seed, lasts, processes, &[pace]).shared(seed, lasts, &front)
    }

    /// Like [`of_sentinels`](Self::of_sentinels), with the masters of a cluster in turn.
    pub(super) fn of_cluster(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let pace = Pace {
            servers: MASTERS,
            at_once: 1,
            ..Pace::of(&CLUSTER, 300..3_000, keys)
        };
        let front = Pace {
            servers: 2 * MASTERS,
            ..Pace::of(&NODE_FRONT, 100..1_500, 1)
        };
        Self::of(seed, lasts, processes, &[pace]).shared(seed, lasts, &front)
    }

    /// Like [`of_servers`](Self::of_servers), with a Postgres server.
    pub(super) fn of_postgres(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let pace = Pace::of(&POSTGRES, 300..2_500, keys);
        Self::of(seed, lasts, processes, &[pace])
    }

    /// Replaces the lanes of processes by one for the shared proxies.
    fn shared(mut self, seed: u64, lasts: Duration, front: &Pace) -> Self {
        for network in &mut self.networks {
            network.clear();
        }
        self.fronts = lane(&mut rng_of(seed, 3_000), lasts, front);
        self
    }

    /// Like [`of_servers`](Self::of_servers), with [`VOTERS`] members.
    pub(super) fn of_quorum(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let pace = Pace {
            servers: VOTERS,
            ..Pace::of(&QUORUM, 300..2_500, keys)
        };
        Self::of(seed, lasts, processes, &[pace.clone(), pace])
    }

    /// Builds a lane for each pace of servers.
    fn of(seed: u64, lasts: Duration, processes: u32, paces: &[Pace]) -> Self {
        let lane = |number: u64, pace: &Pace| {
            let mut rng = rng_of(seed, number);
            lane(&mut rng, lasts, pace)
        };
        let lanes = |first: u64, pace: &Pace| {
            let numbers = first..first + u64::from(processes);
            numbers.map(|number| lane(number, pace)).collect()
        };
        let servers = paces.iter().map(|pace| pace.servers).max().unwrap_or(1);
        let network = Pace {
            servers,
            ..Pace::of(&NETWORK, 200..2_500, 1)
        };
        Self {
            servers: (0..).zip(paces).map(|(n, pace)| lane(n, pace)).collect(),
            networks: lanes(1_000, &network),
            fronts: Lane::new(),
            processes: lanes(2_000, &Pace::of(&PROCESS, 1_000..6_000, 1)),
        }
    }

    /// Returns the faults of a process with an embedded store.
    pub(super) fn embedded(seed: u64, lasts: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            servers: Vec::new(),
            networks: Vec::new(),
            fronts: Lane::new(),
            processes: vec![lane(&mut rng, lasts, &Pace::of(&EMBEDDED, 300..2_500, 1))],
        }
    }

    /// Removes all faults by which a server loses data.
    pub(super) fn without_losses(mut self) -> Self {
        for lane in self.servers.iter_mut().chain([&mut self.fronts]) {
            lane.retain(|step| !step.kind.loses_data());
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        let lanes = self.networks.iter().chain(&self.processes);
        let lanes = lanes.chain(&self.servers).chain([&self.fronts]);
        lanes.map(Vec::len).sum()
    }
}

/// The parameters of a lane.
#[derive(Clone)]
struct Pace {
    choices: &'static [Choice],
    /// The pause between two faults, in milliseconds.
    pauses: Range<u64>,
    /// The number of locks.
    keys: u32,
    servers: usize,
    /// The largest number of servers that a fault affects at once.
    at_once: usize,
}

impl Pace {
    fn of(choices: &'static [Choice], pauses: Range<u64>, keys: u32) -> Self {
        Self {
            choices,
            pauses,
            keys,
            servers: 1,
            at_once: usize::MAX,
        }
    }
}

/// Returns the generator of a lane, which has its own number.
fn rng_of(seed: u64, lane: u64) -> Rng {
    Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(lane))
}

fn lane(rng: &mut Rng, lasts: Duration, pace: &Pace) -> Lane {
    let mut lane = Lane::new();
    let mut used = Duration::ZERO;
    loop {
        let (kind, _, range) = choose(rng, pace.choices);
        let step = Step {
            pause: Duration::from_millis(rng.u64(pace.pauses.clone())),
            kind: *kind,
            lasts: Duration::from_millis(rng.u64(range.clone())),
            number: match kind {
                LockDeleted | RowKept | SlotMoved => rng.u32(..pace.keys),
                _ => rng.u32(1..4),
            },
            servers: some_of(rng, pace, *kind),
        };
        used += step.pause + step.lasts;
        if used > lasts {
            return lane;
        }
        lane.push(step);
    }
}

/// Picks one server, a minority, or sometimes more. A fault without a duration affects one server.
fn some_of(rng: &mut Rng, pace: &Pace, kind: FaultKind) -> Vec<usize> {
    if pace.servers == 1 {
        // Draws no number, so that existing seeds keep their meaning.
        return vec![0];
    }
    let lasts = !matches!(
        kind,
        ClientsKilled | ScriptsFlushed | LockDeleted | AllFlushed
    );
    let how_many = match rng.u8(..100) {
        65..90 if lasts => 2,
        90.. if lasts => 3,
        _ => 1,
    };
    let mut all: Vec<usize> = (0..pace.servers).collect();
    rng.shuffle(&mut all);
    all.truncate(how_many.min(pace.at_once));
    all
}

fn choose<'a>(rng: &mut Rng, choices: &'a [Choice]) -> &'a Choice {
    let all: u32 = choices.iter().map(|(_, weight, _)| weight).sum();
    let mut ticket = rng.u32(..all);
    for choice in choices {
        if ticket < choice.1 {
            return choice;
        }
        ticket -= choice.1;
    }
    &choices[0]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn schedule(seed: u64) -> Schedule {
        Schedule::of_servers(seed, MINUTE, 3, 6)
    }

    #[test]
    fn a_seed_makes_the_same_schedule_again_and_another_makes_another() {
        assert_eq!(schedule(7), schedule(7));
        assert_ne!(schedule(7), schedule(8));
    }

    #[test]
    fn a_server_that_keeps_its_data_still_fails() {
        let minute = |of: fn(u64, Duration, u32, u32) -> Schedule| of(7, MINUTE, 3, 6);
        let kinds = [
            Schedule::of_servers,
            Schedule::of_quorum,
            Schedule::of_postgres,
        ];
        for schedule in kinds.map(minute) {
            for lane in schedule.without_losses().servers {
                assert!(!lane.is_empty());
                assert!(lane.iter().all(|step| !step.kind.loses_data()));
            }
        }
    }

    #[test]
    fn every_kind_of_fault_comes_in_half_an_hour() {
        let of = |of: fn(u64, Duration, u32, u32) -> Schedule| of(7, MINUTE * 30, 3, 6);
        let (one, sentinels) = (of(Schedule::of_servers), of(Schedule::of_sentinels));
        let (cluster, quorum) = (of(Schedule::of_cluster), of(Schedule::of_quorum));
        for (lane, kinds) in [
            (&one.servers[0], SERVER.len()),
            (&one.networks[0], NETWORK.len()),
            (&one.processes[0], PROCESS.len()),
            (&sentinels.servers[0], SENTINEL.len()),
            (&sentinels.fronts, MASTER_FRONT.len()),
            (&cluster.servers[0], CLUSTER.len()),
            (&cluster.fronts, NODE_FRONT.len()),
            (&quorum.servers[1], QUORUM.len()),
            (&of(Schedule::of_postgres).servers[0], POSTGRES.len()),
        ] {
            let found: HashSet<FaultKind> = lane.iter().map(|step| step.kind).collect();
            assert_eq!(found.len(), kinds, "{found:?}");
        }
    }

    #[test]
    fn several_servers_fail_at_once_and_now_and_then_a_majority() {
        let quorum = Schedule::of_quorum(7, MINUTE * 10, 3, 6);
        for lane in quorum.servers.iter().chain(&quorum.networks) {
            let at_once: HashSet<usize> = lane.iter().map(|step| step.servers.len()).collect();
            assert_eq!(at_once, HashSet::from([1, 2, 3]));
        }
    }
}
