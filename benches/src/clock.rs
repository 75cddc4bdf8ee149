//! Clocks.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock in nanoseconds: the same for all processes of a machine, so that times of
/// several processes compare.
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// The processor time of this process in nanoseconds, user and system, all threads.
pub(crate) fn processor_time() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
