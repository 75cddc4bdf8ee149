//! The modes that a history's calls lock in, and the keys for each.

use std::fmt;

use fastrand::Rng;
use rlock_core::Lock;
use serde::{Deserialize, Serialize};

/// The number of permits of a lock, and how many calls take.
const PERMITS: u32 = 8;
const TAKES: [u32; 7] = [1, 1, 1, 2, 3, 5, PERMITS];

/// The mode of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    #[default]
    Exclusive,
    Shared,
    /// So many of the permits.
    Permits {
        take: u32,
        of: u32,
    },
}

impl Mode {
    pub(super) fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }

    /// Returns whether holds in these modes may exist at the same time.
    pub(super) fn tolerates(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Shared, Self::Shared) | (Self::Permits { .. }, Self::Permits { .. })
        )
    }

    /// Returns whether a nested call in this mode may enter a hold in the `outer` mode.
    pub(super) fn may_enter(self, outer: Self) -> bool {
        outer.is_exclusive() || self.tolerates(outer) && self.taken() <= outer.taken()
    }

    /// Returns how many permits a hold in this mode takes.
    pub(super) fn taken(self) -> u32 {
        match self {
            Self::Permits { take, .. } => take,
            Self::Exclusive | Self::Shared => 0,
        }
    }

    /// Returns the lock in this mode.
    pub(super) fn of(self, lock: Lock) -> Lock {
        match self {
            Self::Exclusive => lock,
            Self::Shared => lock.shared(),
            Self::Permits { take, of } => lock.permits(of).take(take),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { take, of } => write!(f, "{take} of {of} permits"),
        }
    }
}

/// The modes of the calls of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// All calls are exclusive.
    Exclusive,
    /// Calls read or write.
    ReadersAndWriters,
    /// Calls take permits, and some are exclusive.
    Permits,
}

impl Usage {
    /// Returns the usage of the key with this number: `k0` is exclusive, `k1` has readers and
    /// writers, `k2` has permits, and so on.
    pub(super) fn of(number: u32) -> Self {
        match number % 3 {
            0 => Self::Exclusive,
            1 => Self::ReadersAndWriters,
            _ => Self::Permits,
        }
    }

    /// Returns the usage on a quorum, which has no permits.
    pub(super) fn on_quorum(self) -> Self {
        match self {
            Self::Permits => Self::ReadersAndWriters,
            usage => usage,
        }
    }

    /// Returns the mode of a call.
    pub(super) fn mode(self, rng: &mut Rng) -> Mode {
        match self {
            Self::ReadersAndWriters if rng.u8(..100) < 70 => Mode::Shared,
            Self::Permits if rng.u8(..100) < 85 => Mode::Permits {
                take: TAKES[rng.usize(..TAKES.len())],
                of: PERMITS,
            },
            _ => Mode::Exclusive,
        }
    }

    /// Returns the mode of a nested call. Now and then it asks for more than its hold.
    pub(super) fn nested(self, outer: Mode, rng: &mut Rng) -> Mode {
        match outer {
            Mode::Exclusive => self.mode(rng),
            _ if rng.u8(..100) < 15 => Mode::Exclusive,
            outer => outer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_tolerate_readers_and_permits_tolerate_permits() {
        let all = [
            Mode::Exclusive,
            Mode::Shared,
            Mode::Permits { take: 2, of: 3 },
        ];
        for (n, mode) in all.into_iter().enumerate() {
            for (m, other) in all.into_iter().enumerate() {
                assert_eq!(mode.tolerates(other), n == m && n > 0);
                assert_eq!(mode.may_enter(other), m == 0 || n == m);
            }
        }
    }

    #[test]
    fn each_key_has_its_modes() {
        let mut rng = Rng::with_seed(7);
        let mut modes = |usage: Usage| {
            let mut modes: Vec<Mode> = (0..100).map(|_| usage.mode(&mut rng)).collect();
            modes.sort_unstable();
            modes.dedup();
            modes
        };
        assert_eq!(modes(Usage::of(3)), [Mode::Exclusive]);
        assert_eq!(modes(Usage::of(4)), [Mode::Exclusive, Mode::Shared]);
        let permits = modes(Usage::of(5));
        let taken: Vec<u32> = permits.iter().map(|mode| mode.taken()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 5, PERMITS]);
        let on_quorum = modes(Usage::of(5).on_quorum());
        assert_eq!(on_quorum, [Mode::Exclusive, Mode::Shared]);
    }
}
