//! Decides by a clock whether a tick is due, how late it may start, and how long the store has the record of its run.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use humantime::format_rfc3339_seconds;

use crate::{error::LockError, limits};

/// The last second that RFC 3339 can write: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The window by default: clocks, timers and slow starts rarely differ by more.
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// How many windows after its tick the store still remembers a run, if that is less than a day.
const MEMORY: u32 = 24;

/// The rules of a tick: when instances may run it, and how long the store has the record of a run.
///
/// An instance runs a tick only if its own clock shows at most tick + window after the store has granted the lock, and then
/// the lock stays taken until that clock shows tick + 2 windows, or longer. When the lock is free again, every clock that
/// differs from it by less than a window shows more than tick + window. So the lock refuses a second instance, or its own
/// clock does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// In whole seconds.
    tick: SystemTime,
    pub(super) window: Duration,
}

impl Schedule {
    pub(super) fn new(tick: SystemTime) -> Self {
        let seconds = tick
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            tick: UNIX_EPOCH + Duration::from_secs(seconds.min(LAST)),
            window: WINDOW,
        }
    }

    /// Returns an error for a window out of bounds, and for a tick too far from now. Such a tick is a mistake, for example a
    /// date that was read as a number.
    pub(super) fn check(self, now: SystemTime, again: bool) -> Result<(), LockError> {
        limits::window(self.window)?;
        let reason =
            "it is further ahead than its window; pass a tick that is due, or check this clock";
        limits::tick(now + self.window >= self.tick, self, reason)?;
        let is_recent = now <= self.tick + DAY * 366;
        let reason =
            "it is more than a year ago; pass the scheduled time, or run it by hand with `again`";
        limits::tick(again || is_recent, self, reason)
    }

    /// Returns whether the tick is more than a window ago.
    pub(super) fn is_over(self, now: SystemTime) -> bool {
        now > self.tick + self.window
    }

    /// Returns how much is left until so many windows after the tick.
    pub(super) fn left(self, now: SystemTime, windows: u32) -> Duration {
        let end = self.tick + self.window * windows;
        end.duration_since(now).unwrap_or_default()
    }

    /// Returns how long the store remembers a run: 24 windows, and 24 hours at most.
    pub(super) fn memory(self) -> Duration {
        self.window.saturating_mul(MEMORY).min(DAY)
    }

    /// Returns how long the lock of a tick that is run now stays taken: until 24 windows after the tick, but for 24 hours at
    /// most, or for two windows if a manual run comes late.
    pub(super) fn record(self, now: SystemTime) -> Duration {
        self.left(now, MEMORY).min(DAY).max(self.window * 2)
    }
}

/// Writes the tick, as in `2026-11-27T02:00:00Z`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_rfc3339_seconds(self.tick).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn schedule(tick: u64, window: Duration) -> Schedule {
        let tick = at(tick);
        Schedule { tick, window }
    }

    #[test]
    fn a_run_is_remembered_until_24_windows_after_the_tick_and_for_a_day_at_most() {
        let hour = Duration::from_secs(3600);
        for (window, first, last) in [
            (hour / 3600, 25, 23),
            (hour / 6, 15_000, 13_800),
            (hour, 24 * 3600, 23 * 3600),
            (hour * 3, 24 * 3600, 24 * 3600),
            (hour * 8, 24 * 3600, 24 * 3600),
        ] {
            let schedule = schedule(1_000_000, window);
            let (start, end) = (schedule.tick - window, schedule.tick + window);
            for (now, expected) in [(start, first), (end, last)] {
                assert_eq!(schedule.record(now).as_secs(), expected, "{window:?}");
            }
            assert_eq!(schedule.record(end + DAY * 365), window * 2);
        }
    }

    #[test]
    fn a_tick_is_a_whole_second_that_can_be_written() {
        let half = Duration::from_millis(500);
        for (tick, expected) in [
            (at(1_795_744_800), "2026-11-27T02:00:00Z"),
            (at(1_795_744_800) + half, "2026-11-27T02:00:00Z"),
            (UNIX_EPOCH - half, "1970-01-01T00:00:00Z"),
            (at(LAST + 1), "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Schedule::new(tick).to_string(), expected);
        }
    }

    #[test]
    fn a_tick_far_from_now_is_invalid_unless_it_is_old_and_run_by_hand() {
        let schedule = schedule(1_795_744_800, WINDOW);
        let year = schedule.tick + DAY * 366;
        for (now, again, reason) in [
            (schedule.tick - WINDOW, false, None),
            (schedule.tick - WINDOW - DAY, false, Some("further ahead")),
            (schedule.tick - WINDOW - DAY, true, Some("further ahead")),
            (year, false, None),
            (year + DAY, false, Some("more than a year ago")),
            (year + DAY, true, None),
        ] {
            let checked = schedule
                .check(now, again)
                .map_err(|error| error.to_string());
            match (checked, reason) {
                (Ok(()), None) => {}
                (Err(error), Some(reason)) => assert!(error.contains(reason), "{error}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_tick_is_due_for_a_window_before_and_after_it() {
        let schedule = schedule(1200, WINDOW);
        for (now, is_early, is_over) in [
            (599, true, false),
            (600, false, false),
            (1800, false, false),
            (1801, false, true),
        ] {
            let now = at(now);
            assert_eq!(schedule.check(now, false).is_err(), is_early, "{now:?}");
            assert_eq!(schedule.is_over(now), is_over, "{now:?}");
        }
        assert_eq!(schedule.left(at(600), 2), WINDOW * 3);
        assert_eq!(schedule.left(at(1200), 1), WINDOW);
        assert_eq!(schedule.left(at(9999), 2), Duration::ZERO);
    }

    proptest! {
        /// The instances call in the order of the true time, each by its own clock. The store keeps the lock until its end.
        #[test]
        fn instances_whose_clocks_differ_by_less_than_the_window_run_a_tick_once(
            mut calls in prop::collection::vec((0_u64..50_000, 0_u64..10_000), 1..12),
        ) {
            let schedule = schedule(20, Duration::from_secs(10));
            calls.sort_unstable();
            let (mut kept_until, mut runs) = (UNIX_EPOCH, 0);
            for (time, skew) in calls {
                let time = UNIX_EPOCH + Duration::from_millis(time);
                let clock = time + Duration::from_millis(skew);
                let is_due = schedule.check(clock, false).is_ok() && !schedule.is_over(clock);
                if is_due && time >= kept_until {
                    // At least: the command may fail, or its process die. A record lasts longer.
                    kept_until = time + schedule.left(clock, 2);
                    prop_assert!(schedule.record(clock) >= schedule.left(clock, 2));
                    runs += 1;
                }
            }
            prop_assert!(runs <= 1, "{} runs", runs);
        }
    }
}
