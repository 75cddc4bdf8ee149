//! Until when a lease is valid on the client's clock, with the margin for drift, and when to renew it.

use std::{num::NonZeroU64, ops::Add, time::Duration};

/// The shortest lease that is accepted.
pub const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest lease that is accepted.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest bounded wait that is accepted. `wait_forever` waits for longer.
pub const MAX_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A point in time in nanoseconds, on a clock that runs on while the machine sleeps.
///
/// Stored as the nanoseconds plus one, so that `Option<Time>` needs no more memory. Every ownership has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(NonZeroU64);

impl Time {
    /// A point in time that never comes.
    pub const NEVER: Self = Self(NonZeroU64::MAX);

    /// Returns the time so many nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Returns the nanoseconds since the start of the clock.
    #[must_use]
    pub fn nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the time since `earlier`, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()))
    }

    /// Returns the last multiple of `grid` at or before this point.
    fn rounded_down_to(self, grid: u64) -> Self {
        Self::from_nanos(self.nanos() / grid.max(1) * grid)
    }

    fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// The start of the clock.
impl Default for Time {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.after(nanos(duration))
    }
}

impl From<Duration> for Time {
    fn from(elapsed: Duration) -> Self {
        Self::from_nanos(nanos(elapsed))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the end of the validity of a lease whose request was sent at `sent_at`.
///
/// The lease counts from before the request was sent, because the server may have started it at any moment since. It
/// is shorter by a margin of 1 % and 2 ms, the drift term of Redlock, because clocks may run at different speeds.
#[must_use]
pub fn valid_until(sent_at: Time, lease: Duration) -> Time {
    let margin = lease / 100 + Duration::from_millis(2);
    sent_at + lease.saturating_sub(margin)
}

/// Returns when a lease that was last confirmed at `sent_at` is due for renewal: after a quarter to a third of it.
///
/// Rounds a third down to a grid, so that ownerships with the same lease are due together and share a request.
/// A third is a multiple of the grid. An ownership on the grid is therefore renewed after exactly a third.
#[must_use]
pub(crate) fn renewal_due(sent_at: Time, lease: Duration) -> Time {
    let part = |of: u64| nanos(lease) / of;
    let third = sent_at.after(part(3));
    third.rounded_down_to(part(12)).max(sent_at.after(part(4)))
}

/// Returns how long a renewal may take until it is tried again.
#[must_use]
pub fn renewal_retry(lease: Duration) -> Duration {
    lease / 6
}

/// Returns the time of the next check, which is never immediate.
#[must_use]
pub(crate) fn next_check(then: Time, now: Time) -> Time {
    then.max(now + Duration::from_micros(100))
}

#[cfg(test)]
pub(crate) mod tests;
