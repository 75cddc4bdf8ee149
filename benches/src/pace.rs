//! How long each measurement runs.

use std::time::Duration;

use crate::contestant::Kind;

/// The number and the duration of rounds.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// The number of rounds for a median.
    pub(crate) rounds: usize,
    /// The number of slices of a round, if contestants can take turns that often.
    pub(crate) slices: usize,
    pub(crate) slice: Duration,
    /// The duration of a round on one lock.
    pub(crate) contended: Duration,
    /// The same for peers, whose waits are up to a second long.
    pub(crate) peer_contended: Duration,
    /// The duration of the warm-up before each round. Tasks stay inside for a while, so that two
    /// holders at once would meet.
    pub(crate) warm_up: Duration,
    /// The duration of the run that counts commands.
    pub(crate) counted: Duration,
    pub(crate) peer_counted: Duration,
    /// The number of one-second windows that measure the cost of idle locks.
    pub(crate) windows: usize,
    /// Whether slow measurements are left out.
    pub(crate) quick: bool,
}

impl Pace {
    pub(crate) fn full() -> Self {
        Self {
            rounds: 5,
            slices: 3,
            slice: Duration::from_millis(100),
            contended: Duration::from_millis(700),
            peer_contended: Duration::from_millis(800),
            warm_up: Duration::from_millis(60),
            counted: Duration::from_millis(300),
            peer_counted: Duration::from_millis(700),
            windows: 5,
            quick: false,
        }
    }

    pub(crate) fn quick() -> Self {
        Self {
            rounds: 3,
            slices: 2,
            slice: Duration::from_millis(50),
            contended: Duration::from_millis(200),
            peer_contended: Duration::from_millis(300),
            warm_up: Duration::from_millis(30),
            counted: Duration::from_millis(150),
            peer_counted: Duration::from_millis(300),
            windows: 3,
            quick: true,
        }
    }

    /// Returns the duration of a contestant's round on one lock.
    pub(crate) fn contended_of(&self, kind: Kind) -> Duration {
        if kind.is_peer() {
            self.peer_contended
        } else {
            self.contended
        }
    }

    /// Returns the duration of a contestant's count of commands.
    pub(crate) fn counted_of(&self, kind: Kind) -> Duration {
        if kind.is_peer() {
            self.peer_counted
        } else {
            self.counted
        }
    }

    /// Returns longer rounds, for crowds in which each task rarely gets a turn.
    pub(crate) fn for_crowds(&self) -> Self {
        Self {
            contended: self.contended * 2,
            counted: self.counted * 2,
            ..self.clone()
        }
    }

    pub(crate) fn with_rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }
}
