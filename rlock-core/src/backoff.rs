//! Counts the failures in a row of a connection, a read or an announcement, and returns the pause before the next try,
//! whose length `rlock_proto::wait` draws.

use std::time::Duration;

use rlock_proto::wait::Spread;

/// Growing pauses between tries at a store that fails.
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        Spread(fastrand::u64(..)).after_failures(self.failures - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_failures_grow_to_a_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..50).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Duration::from_millis(10));
        assert!(pauses.iter().all(|pause| *pause <= Spread::LONGEST));
        assert!(pauses[49] >= Spread::LONGEST / 2);
    }
}
