//! Pauses: between attempts at a store that fails, and of a waiter whose notification may be lost.

use std::time::Duration;

/// Returns how long a waiter sleeps before it asks again, at most `most`. The holder's lease has
/// `ttl` left.
///
/// A dead holder's lease ends unannounced, hence the TTL; the jitter, never below it, keeps the
/// waiters of a fleet from asking all at once.
pub(crate) fn fallback(ttl: Option<Duration>, most: Duration) -> Duration {
    let pause = ttl.map_or(most, |ttl| ttl.min(most));
    pause + jitter(pause / 20 + Duration::from_millis(1))
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

/// Growing pauses with jitter between tries at a store that fails.
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_millis(500);

    pub(crate) fn next(&mut self) -> Duration {
        let pause = (Self::FIRST * 2u32.pow(self.failures.min(8))).min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause / 2 + jitter(pause / 2)
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
            let pause = fallback(Some(ttl), CAP);
            assert!(pause >= ttl && pause <= ttl + ttl / 20 + Duration::from_millis(1));
        }
        assert!(fallback(None, CAP) <= CAP + CAP / 10);
        assert!(fallback(Some(Duration::MAX), CAP) <= CAP + CAP / 10);
    }

    #[test]
    fn pauses_between_failures_grow_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..50).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST);
        assert!(pauses.iter().all(|pause| *pause <= Backoff::LONGEST));
        assert!(pauses[49] >= Backoff::LONGEST / 2);
    }
}
