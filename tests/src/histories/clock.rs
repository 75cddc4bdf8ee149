//! A clock for all processes of the machine, which continues while the machine sleeps.

use std::time::Duration;

/// Returns the nanoseconds since the machine started.
#[cfg(unix)]
#[must_use]
pub fn now() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// Returns the nanoseconds since 1970.
#[cfg(not(unix))]
#[must_use]
pub fn now() -> u64 {
    nanos(std::time::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// Converts a duration to nanoseconds.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a time of the clock to milliseconds, for messages.
pub(super) fn ms(nanos: u64) -> u64 {
    nanos / 1_000_000
}
