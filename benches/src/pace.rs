//! How long everything takes.

use std::time::Duration;

use crate::contestant::Kind;

/// How many rounds there are, and how long each lasts.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Medians are of so many.
    pub(crate) rounds: usize,
    /// In how many slices a round is cut where contestants can take turns that often.
    pub(crate) slices: usize,
    pub(crate) slice: Duration,
    /// One round on one lock.
    pub(crate) contended: Duration,
    /// The same for peers: their waits are up to a second long.
    pub(crate) peer_contended: Duration,
    /// The run before each round, not measured; those who enter stay inside for a while, so that
    /// two at once would meet.
    pub(crate) warm_up: Duration,
    /// The run in which commands are counted.
    pub(crate) counted: Duration,
    pub(crate) peer_counted: Duration,
    /// Windows of a second in which their cost is measured.
    pub(crate) windows: usize,
    /// Whether what takes long is left out.
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

    /// How long a contestant's round on one lock is.
    pub(crate) fn contended_of(&self, kind: Kind) -> Duration {
        if kind.is_peer() {
            self.peer_contended
        } else {
            self.contended
        }
    }

    /// How long a contestant's commands are counted.
    pub(crate) fn counted_of(&self, kind: Kind) -> Duration {
        if kind.is_peer() {
            self.peer_counted
        } else {
            self.counted
        }
    }

    /// Longer rounds, for crowds in which a task's turn comes rarely.
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
