//! The modes that a history's calls lock in, and the keys for each.

use fastrand::Rng;
use rlock_core::{Lock, LockMode};

/// The number of permits of a lock, and how many calls take.
const PERMITS: u32 = 8;
const TAKES: [u32; 7] = [1, 1, 1, 2, 3, 5, PERMITS];

/// Returns the lock in this mode.
pub(super) fn in_mode(lock: Lock, mode: LockMode) -> Lock {
    match mode {
        LockMode::Shared => lock.shared(),
        LockMode::Permits { take, of } => lock.permits(of).take(take),
        _ => lock,
    }
}

/// Reads and writes a mode as `exclusive`, `shared` or, for permits, as `3/8`.
pub(super) mod text {
    use rlock_core::LockMode;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in crate::histories) fn serialize<S: Serializer>(
        mode: &LockMode,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match mode {
            LockMode::Permits { take, of } => to.collect_str(&format_args!("{take}/{of}")),
            mode => to.serialize_str(mode.as_str()),
        }
    }

    pub(in crate::histories) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<LockMode, D::Error> {
        let text = String::deserialize(from)?;
        let permits = || {
            let (take, of) = text.split_once('/')?;
            let (take, of) = (take.parse().ok()?, of.parse().ok()?);
            Some(LockMode::Permits { take, of })
        };
        match &*text {
            "exclusive" => Ok(LockMode::Exclusive),
            "shared" => Ok(LockMode::Shared),
            _ => permits().ok_or_else(|| D::Error::custom(format_args!("no mode: {text}"))),
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
    pub(super) fn mode(self, rng: &mut Rng) -> LockMode {
        match self {
            Self::ReadersAndWriters if rng.u8(..100) < 70 => LockMode::Shared,
            Self::Permits if rng.u8(..100) < 85 => LockMode::Permits {
                take: TAKES[rng.usize(..TAKES.len())],
                of: PERMITS,
            },
            _ => LockMode::Exclusive,
        }
    }

    /// Returns the mode of a nested call. Now and then it asks for more than its hold.
    pub(super) fn nested(self, outer: LockMode, rng: &mut Rng) -> LockMode {
        match outer {
            LockMode::Exclusive => self.mode(rng),
            _ if rng.u8(..100) < 15 => LockMode::Exclusive,
            outer => outer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_modes() {
        let mut rng = Rng::with_seed(7);
        let mut modes = |usage: Usage| {
            let mut modes: Vec<LockMode> = (0..100).map(|_| usage.mode(&mut rng)).collect();
            modes.sort_unstable();
            modes.dedup();
            modes
        };
        assert_eq!(modes(Usage::of(3)), [LockMode::Exclusive]);
        assert_eq!(modes(Usage::of(4)), [LockMode::Exclusive, LockMode::Shared]);
        let permits = modes(Usage::of(5));
        let taken: Vec<u32> = permits.iter().map(|mode| mode.permits_taken()).collect();
        assert_eq!(taken, [0, 1, 2, 3, 5, PERMITS]);
        let on_quorum = modes(Usage::of(5).on_quorum());
        assert_eq!(on_quorum, [LockMode::Exclusive, LockMode::Shared]);
    }
}
