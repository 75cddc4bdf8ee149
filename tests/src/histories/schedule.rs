//! Which fault comes when: from the seed alone, and known before anything runs.
//!
//! Faults come in lanes, one after the other in each: one lane for the server and its data, and for each process
//! one for its network and one for itself. Lanes know nothing of each other, so their faults meet by chance.

use std::time::Duration;

use fastrand::Rng;

use super::record::FaultKind::{
    self, AllFlushed, BlackHole, ClientsKilled, ConnectionsHalfClosed, ConnectionsRefused,
    ConnectionsReset, LockDeleted, MasterKilled, MasterPaused, ProcessKilled, ProcessPaused,
    ProcessRetired, RepliesDelayed, RepliesDropped, RepliesHeld, RepliesSwallowed, RequestsDropped,
    RequestsHeld, RequestsSwallowed, ScriptsFlushed, ServerKilled, ServerPaused,
};

/// One fault, and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) pause: Duration,
    pub(super) kind: FaultKind,
    /// How long it lasts, or how late it makes something.
    pub(super) lasts: Duration,
    /// How many messages are lost, or which key is concerned.
    pub(super) number: u32,
}

/// Faults one after the other.
pub(super) type Lane = Vec<Step>;

/// All faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) server: Lane,
    /// A lane for each process.
    pub(super) networks: Vec<Lane>,
    pub(super) processes: Vec<Lane>,
}

/// A kind of fault: how often it comes beside others, and how long it lasts, in milliseconds.
type Choice = (FaultKind, u32, std::ops::Range<u64>);

const SERVER: [Choice; 6] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 4, 0..1),
    (LockDeleted, 8, 0..1),
    (AllFlushed, 2, 0..1),
    (ServerPaused, 5, 50..2_500),
    (ServerKilled, 2, 0..1_000),
];

/// Of a master with a replica that Sentinels watch. A short pause is less than they wait for.
const SENTINEL: [Choice; 7] = [
    (ClientsKilled, 4, 0..1),
    (ScriptsFlushed, 3, 0..1),
    (LockDeleted, 4, 0..1),
    (AllFlushed, 1, 0..1),
    (ServerPaused, 4, 50..350),
    (MasterKilled, 4, 0..1_000),
    (MasterPaused, 3, 2_500..5_000),
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

const PROCESS: [Choice; 3] = [
    (ProcessKilled, 3, 0..1),
    // From less than the shortest lease to more than the longest.
    (ProcessPaused, 6, 100..3_500),
    (ProcessRetired, 1, 0..1),
];

/// Of a process that has its store inside.
const EMBEDDED: [Choice; 1] = [(ProcessPaused, 1, 50..2_500)];

impl Schedule {
    /// Faults for as long, on this many processes.
    pub(super) fn of_servers(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let lane = |number: u64, choices: &[Choice], pauses| {
            let mut rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
            lane(&mut rng, lasts, choices, pauses, keys)
        };
        let lanes = |first: u64, choices: &[Choice], pauses: std::ops::Range<u64>| {
            (0..u64::from(processes))
                .map(|number| lane(first + number, choices, pauses.clone()))
                .collect()
        };
        Self {
            server: lane(0, &SERVER, 300..2_500),
            networks: lanes(1_000, &NETWORK, 200..2_500),
            processes: lanes(2_000, &PROCESS, 1_000..6_000),
        }
    }

    /// As [`of_servers`](Self::of_servers), where clients connect to whichever is the master, by no proxy.
    pub(super) fn of_sentinels(seed: u64, lasts: Duration, processes: u32, keys: u32) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(1_000_003));
        Self {
            server: lane(&mut rng, lasts, &SENTINEL, 500..4_000, keys),
            networks: (0..processes).map(|_| Lane::new()).collect(),
            ..Self::of_servers(seed, lasts, processes, keys)
        }
    }

    /// Faults of one process with an embedded store.
    pub(super) fn embedded(seed: u64, lasts: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            server: Lane::new(),
            networks: Vec::new(),
            processes: vec![lane(&mut rng, lasts, &EMBEDDED, 300..2_500, 1)],
        }
    }

    /// The same, but the server loses no data.
    pub(super) fn without_losses(mut self) -> Self {
        self.server.retain(|step| !step.kind.loses_data());
        self
    }

    pub(super) fn len(&self) -> usize {
        let lanes = self.networks.iter().chain(&self.processes);
        self.server.len() + lanes.map(Vec::len).sum::<usize>()
    }
}

fn lane(
    rng: &mut Rng,
    lasts: Duration,
    choices: &[Choice],
    pauses: std::ops::Range<u64>,
    keys: u32,
) -> Lane {
    let mut lane = Lane::new();
    let mut used = Duration::ZERO;
    loop {
        let (kind, _, range) = choose(rng, choices);
        let step = Step {
            pause: Duration::from_millis(rng.u64(pauses.clone())),
            kind: *kind,
            lasts: Duration::from_millis(rng.u64(range.clone())),
            number: match kind {
                LockDeleted => rng.u32(..keys),
                _ => rng.u32(1..4),
            },
        };
        used += step.pause + step.lasts;
        if used > lasts {
            return lane;
        }
        lane.push(step);
    }
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
    fn faults_end_with_the_run() {
        let schedule = schedule(7);
        for lane in schedule.networks.iter().chain([&schedule.server]) {
            let used: Duration = lane.iter().map(|step| step.pause + step.lasts).sum();
            assert!(used <= MINUTE && used > MINUTE / 2, "{used:?}");
        }
    }

    #[test]
    fn a_server_that_keeps_its_data_still_fails() {
        let server = schedule(7).without_losses().server;
        assert!(!server.is_empty());
        assert!(server.iter().all(|step| !step.kind.loses_data()));
    }

    #[test]
    fn every_kind_of_fault_comes_in_half_an_hour() {
        let schedule = Schedule::of_servers(7, MINUTE * 30, 3, 6);
        let kinds = |lane: &Lane| -> HashSet<FaultKind> { lane.iter().map(|s| s.kind).collect() };
        assert_eq!(kinds(&schedule.server).len(), SERVER.len());
        let sentinels = Schedule::of_sentinels(7, MINUTE * 30, 3, 6);
        assert_eq!(kinds(&sentinels.server).len(), SENTINEL.len());
        assert_eq!(kinds(&schedule.networks[0]).len(), NETWORK.len());
        assert_eq!(kinds(&schedule.processes[0]).len(), PROCESS.len());
    }
}
