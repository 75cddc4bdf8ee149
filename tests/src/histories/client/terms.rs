//! The options of a random call.

use std::time::Duration;

use fastrand::Rng;
use rlock_core::{Lock, LockMode};

use crate::histories::{
    check::{LONGEST_LEASE, LONGEST_RETAIN, LONGEST_WAIT},
    mode::{Usage, in_mode},
};

/// Random options of a lock.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) mode: LockMode,
    pub(super) lease: Duration,
    wait: Duration,
    watchdog: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) min_hold: Option<Duration>,
    pub(super) retain: Duration,
}

impl Terms {
    pub(super) fn by_chance(rng: &mut Rng, usage: Usage, mode: LockMode) -> Self {
        const LEASES: [u64; 6] = [200, 300, 500, 800, 1_200, LONGEST_LEASE / 1_000_000];
        // Calls with different leases do not share a hold.
        const FEW_LEASES: [u64; 2] = [300, 1_200];
        const WAITS: [u64; 6] = [0, 50, 300, 1_000, 1_000, LONGEST_WAIT / 1_000_000];
        let leases: &[u64] = match usage {
            Usage::ReadersAndWriters => &FEW_LEASES,
            Usage::Exclusive | Usage::Permits => &LEASES,
        };
        let mut terms = Self {
            mode,
            lease: Duration::from_millis(leases[rng.usize(..leases.len())]),
            wait: Duration::from_millis(WAITS[rng.usize(..WAITS.len())]),
            watchdog: rng.u8(..100) < 88,
            max_hold: (rng.u8(..100) < 8).then(|| Duration::from_millis(rng.u64(30..600))),
            min_hold: (rng.u8(..100) < 6).then(|| Duration::from_millis(rng.u64(20..400))),
            retain: if rng.bool() {
                Duration::from_nanos(rng.u64(..LONGEST_RETAIN))
            } else {
                Duration::ZERO
            },
        };
        if matches!(mode, LockMode::Permits { .. }) || !terms.watchdog {
            // The client refuses to retain a permit or a lock that is not renewed.
            terms.retain = Duration::ZERO;
        }
        // The client refuses a `max_hold` below `min_hold`.
        terms.max_hold = terms
            .max_hold
            .map(|most| most.max(terms.min_hold.unwrap_or_default()));
        terms
    }

    /// Returns the options of a nested acquire.
    pub(super) fn nested(rng: &mut Rng, usage: Usage, mode: LockMode) -> Self {
        Self {
            max_hold: None,
            min_hold: None,
            ..Self::by_chance(rng, usage, mode)
        }
    }

    /// Returns these options in another mode.
    pub(super) fn in_mode(&self, mode: LockMode) -> Self {
        Self {
            mode,
            ..self.clone()
        }
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    pub(super) fn on(&self, lock: Lock) -> Lock {
        let mut lock = lock
            .lease(self.lease)
            .wait(self.wait)
            .watchdog(self.watchdog)
            .retain(self.retain);
        if let Some(most) = self.max_hold {
            lock = lock.max_hold(most);
        }
        if let Some(least) = self.min_hold {
            lock = lock.min_hold(least);
        }
        in_mode(lock, self.mode)
    }
}
