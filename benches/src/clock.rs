//! Measures processor time and real time.

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic clock in nanoseconds. It is the same for all processes of a machine, so
/// their times can be compared.
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Returns the processor time of this process in nanoseconds: user and system, all threads.
pub(crate) fn processor_time() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
