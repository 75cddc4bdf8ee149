//! The numbers that all stores and clients share: grace period, most waiters let in at once (64), tokens of a fence.
//! The Lua scripts get theirs from here.

use std::time::Duration;

/// How long a lock is reserved for a waiter that has not confirmed its wait.
pub const GRACE: Duration = Duration::from_secs(1);
/// The lifetime of a wait queue that no owner joins. Each waiter asks sooner by itself.
pub const QUEUE_LIFETIME: Duration = Duration::from_secs(20);
/// A waiter that has been silent for longer than this may be dead.
pub const LONGEST_SILENCE: Duration = Duration::from_millis(50);
/// How often a waiter asks again if the lock admits it but earlier waiters precede it, because their clients may be gone.
pub const BETWEEN_PROBES: Duration = Duration::from_millis(900);
/// How long a lock with waiters stays taken after a release at a member of a quorum, until the waiters are notified. Otherwise the
/// releasing client would precede them.
pub const UNTIL_NOTIFIED: Duration = Duration::from_millis(5);
/// How many waiters one hand-off lets in, and among how many waiters behind the first one it looks for one that the lock
/// admits.
pub const MOST_LET_IN: usize = 64;
/// The number of holders that one waiter notifies.
pub const MOST_NOTIFIED: usize = 256;
/// The number of waiters and of holders that an inspection shows.
pub const MOST_SHOWN: usize = 100;

/// The number of fencing tokens of a fence. The first one is this number times the fence.
pub const TOKENS: u64 = 128;
/// The limit of fences. Tokens are then below 2^53, which doubles represent exactly.
pub const TOO_LARGE_FENCE: u64 = 1 << 46;
/// How many fences a second has. A new fence is the store's time in this unit, or the last fence plus one if that is larger.
/// The unit is a decimal fraction of a second, so that a script gets a fence from the server's time without arithmetic.
pub const FENCES_A_SECOND: u64 = 10_000;

/// Returns the fence of a time, in microseconds since 1970.
#[must_use]
pub const fn fence_at(micros: u64) -> u64 {
    micros / (1_000_000 / FENCES_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_ten_thousand_fences() {
        assert_eq!(fence_at(1_500_199), 15_001);
    }
}
