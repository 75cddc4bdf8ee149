//! Draws the length of a pause: after failures in a row (10 ms at most, doubled up to 500 ms), and until a waiter asks
//! again without a notification.

use std::time::Duration;

/// Makes the pauses of a client differ from each other and from those of other clients. Zero makes no pause longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spread(pub u64);

impl Spread {
    const FIRST: Duration = Duration::from_millis(10);
    /// The longest pause.
    pub const LONGEST: Duration = Duration::from_millis(500);

    /// Returns the spread of another pause.
    #[must_use]
    pub fn next(self) -> Self {
        // The multiplier of splitmix64 keeps zero.
        Self(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn part_of(self, most: Duration) -> Duration {
        let part = u32::try_from(self.0 >> 32).unwrap_or(u32::MAX);
        most.mul_f64(f64::from(part) / f64::from(u32::MAX))
    }

    /// Returns how long a waiter sleeps before it asks again: for the `ttl` that the holder's lease has left, because
    /// the lease of a dead holder ends without a message, or for `most` if that is shorter. The spread only makes the
    /// pause longer.
    #[must_use]
    pub fn fallback(self, ttl: Option<Duration>, most: Duration) -> Duration {
        let pause = ttl.map_or(most, |ttl| ttl.min(most));
        pause + self.part_of(pause / 20 + Duration::from_millis(1))
    }

    /// Returns the pause after this many failures in a row.
    #[must_use]
    pub fn after_failures(self, failures: u32) -> Duration {
        let pause = (Self::FIRST * 2u32.pow(failures.min(8))).min(Self::LONGEST);
        pause / 2 + self.part_of(pause / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(5);

    #[test]
    fn a_waiter_never_wakes_before_the_lease_that_it_waits_for_has_ended() {
        for ms in [0, 1, 10, 4_999] {
            let ttl = Duration::from_millis(ms);
            let pause = Spread(fastrand::u64(..)).fallback(Some(ttl), CAP);
            assert!(pause >= ttl && pause <= ttl + ttl / 20 + Duration::from_millis(1));
        }
        let most = Spread(u64::MAX);
        assert!(most.fallback(None, CAP) <= CAP + CAP / 10);
        assert!(most.fallback(Some(Duration::MAX), CAP) <= CAP + CAP / 10);
        assert_ne!(most.next(), most, "clients do not ask all at once");
    }

    #[test]
    fn pauses_double_with_each_failure_up_to_the_longest() {
        let ms = |spread, failures| Spread(spread).after_failures(failures).as_millis();
        assert_eq!(
            [0, 1, 2, 99].map(|failures| ms(0, failures)),
            [5, 10, 20, 250]
        );
        assert_eq!(
            [0, 1, 2, 99].map(|failures| ms(u64::MAX, failures)),
            [10, 20, 40, 500]
        );
    }
}
