//! The rules of a tick: when it is due, how late it may start, and how long its record lasts.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use humantime::{format_rfc3339_seconds, parse_rfc3339_weak};

/// The last second that RFC 3339 can write: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many windows after its tick the store still remembers a run, if that is less than a day.
const MEMORY: u32 = 24;

/// A scheduled time of a job, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick(SystemTime);

impl Tick {
    /// Returns the multiple of the window that is nearest to this time.
    pub(crate) fn nearest(now: SystemTime, window: Duration) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default() + window / 2;
        let (since, window) = (since.as_nanos(), window.as_nanos());
        let seconds = u64::try_from(since / window * window / 1_000_000_000);
        let seconds = seconds.map_or(LAST, |seconds| seconds.min(LAST));
        Self(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Returns whether the tick is more than a year ago. Such a tick is a mistake, for example a date that was read as a number.
    pub(crate) fn is_ancient(self, now: SystemTime) -> bool {
        now > self.0 + DAY * 366
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_rfc3339_seconds(self.0).fmt(f)
    }
}

/// The rules of a tick: when hosts may run it, and how long the store has the record of a run.
///
/// A host runs a tick only if its own clock shows at most tick + window after the store has granted the lock, and then the
/// lock stays taken until that clock shows tick + 2 windows, or longer. When the lock is free again, every clock that differs
/// from it by less than a window shows more than tick + window. So the lock refuses a second host, or its own clock does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) tick: Tick,
    pub(crate) window: Duration,
}

impl Schedule {
    /// Returns whether the tick is more than a window ahead.
    pub(crate) fn is_early(self, now: SystemTime) -> bool {
        now + self.window < self.tick.0
    }

    /// Returns whether the tick is more than a window ago.
    pub(crate) fn is_over(self, now: SystemTime) -> bool {
        now > self.tick.0 + self.window
    }

    /// Returns how much is left until so many windows after the tick.
    pub(crate) fn left(self, now: SystemTime, windows: u32) -> Duration {
        let end = self.tick.0 + self.window * windows;
        end.duration_since(now).unwrap_or_default()
    }

    /// Returns how long the store remembers a run: 24 windows, and 24 hours at most.
    pub(crate) fn memory(self) -> Duration {
        (self.window * MEMORY).min(DAY)
    }

    /// Returns how long the lock of a tick that is run now stays taken: until 24 windows after the tick, but for 24 hours at
    /// most, or for two windows if a manual run comes late.
    pub(crate) fn record(self, now: SystemTime) -> Duration {
        self.left(now, MEMORY).min(DAY).max(self.window * 2)
    }
}

/// Parses a tick from the command line.
pub(crate) fn parse(text: &str) -> Result<Tick, String> {
    let rule = "write a time with its offset, as `2026-11-27T02:00Z` or `2026-11-27T03:00+01:00`, or seconds since 1970, \
                as `@1795744800`";
    let seconds = match text.strip_prefix('@') {
        Some(seconds) => seconds.parse().ok(),
        None => rfc3339(text),
    };
    let seconds = seconds.filter(|seconds| *seconds <= LAST).ok_or(rule)?;
    Ok(Tick(UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// Parses RFC 3339, in which the seconds may be left out, and returns the seconds since 1970.
fn rfc3339(text: &str) -> Option<u64> {
    let utc = text.strip_suffix('Z').map(|time| format!("{time}+00:00"));
    let text = utc.as_deref().unwrap_or(text);
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, offset) = offset.split_at_checked(1)?;
    let since_1970 = |time: &str| {
        // `humantime` ignores the text behind the first `Z`.
        let is_local = !time.contains(['Z', '+']);
        let time = parse_rfc3339_weak(time).ok().filter(|_| is_local)?;
        Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
    };
    let seconds = if local.len() == 16 { ":00" } else { "" };
    let local = since_1970(&format!("{local}{seconds}"))?;
    let offset = since_1970(&format!("1970-01-01T{offset}:00"))?;
    match sign {
        "+" => local.checked_sub(offset),
        "-" => Some(local + offset),
        _ => None,
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

    #[test]
    fn a_tick_is_the_same_however_it_is_written() {
        for text in [
            "2026-11-27T02:00Z",
            "2026-11-27T02:00:00Z",
            "2026-11-27T02:00:00.5Z",
            "2026-11-27T02:00+00:00",
            "2026-11-27T03:00+01:00",
            "2026-11-26T20:30:00-05:30",
            "@1795744800",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), "2026-11-27T02:00:00Z");
        }
        assert_eq!(parse("@0").unwrap().to_string(), "1970-01-01T00:00:00Z");
        let last = parse("9999-12-31T23:59:59Z").unwrap();
        assert_eq!(last.to_string(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn an_invalid_tick_is_refused_with_an_example() {
        for text in [
            "",
            "@",
            "@-1",
            "@253402300800",
            "02:00",
            "2026-11-27",
            "2026-11-27T02:00",
            "2026-11-27T02:00:00",
            "2026-13-27T02:00Z",
            "2026-11-27T24:00Z",
            "2026-11-27T02Z",
            "2026-11-27T02:00 01:00",
            "2026-11-27T02:00+1:000",
            "2026-11-27T02:00+01:60",
            "2026-11-27T02:00++1:00",
            "2026-11-27T02:00:00Z+01:00",
            "2026-11-27T02:00:00+01:00+01:00",
            "2026-11-27T02:00:00+01:00Z",
            "2026-11-27T02:00+01:00Z",
            "1970-01-01T00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2026-11-27T02:00é",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("`2026-11-27T02:00Z`"), "{error}");
        }
    }

    #[test]
    fn without_a_tick_it_is_the_nearest_multiple_of_the_window() {
        for (now, expected) in [(0, 0), (299, 0), (300, 600), (600, 600), (899, 600)] {
            assert_eq!(Tick::nearest(at(now), WINDOW), Tick(at(expected)), "{now}");
        }
        let late = at(1_795_744_802);
        assert_eq!(
            Tick::nearest(late, WINDOW).to_string(),
            "2026-11-27T02:00:00Z"
        );
    }

    fn schedule(tick: u64, window: Duration) -> Schedule {
        let tick = Tick(at(tick));
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
            let (start, end) = (schedule.tick.0 - window, schedule.tick.0 + window);
            for (now, expected) in [(start, first), (end, last)] {
                assert_eq!(schedule.record(now).as_secs(), expected, "{window:?}");
            }
            assert_eq!(schedule.record(end + DAY * 365), window * 2);
        }
    }

    #[test]
    fn a_tick_is_ancient_after_a_year() {
        let tick = Tick(at(1_795_744_800));
        let year = tick.0 + DAY * 366;
        for (now, expected) in [(UNIX_EPOCH, false), (year, false), (year + DAY, true)] {
            assert_eq!(tick.is_ancient(now), expected, "{now:?}");
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
            assert_eq!(schedule.is_early(now), is_early, "{now:?}");
            assert_eq!(schedule.is_over(now), is_over, "{now:?}");
        }
        assert_eq!(schedule.left(at(600), 2), WINDOW * 3);
        assert_eq!(schedule.left(at(1200), 1), WINDOW);
        assert_eq!(schedule.left(at(9999), 2), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn text_of_any_kind_is_a_tick_or_an_error(text in "\\PC{0,30}", digits in "[0-9TZ:+.@-]{0,26}") {
            for text in [text, digits] {
                if let Ok(tick) = parse(&text) {
                    prop_assert_eq!(parse(&tick.to_string()), Ok(tick));
                }
            }
        }

        /// The hosts call in the order of the true time, each by its own clock. The store keeps the lock until its end.
        #[test]
        fn hosts_whose_clocks_differ_by_less_than_the_window_run_a_tick_once(
            mut calls in prop::collection::vec((0_u64..50_000, 0_u64..10_000), 1..12),
        ) {
            let schedule = schedule(20, Duration::from_secs(10));
            calls.sort_unstable();
            let (mut kept_until, mut runs) = (UNIX_EPOCH, 0);
            for (time, skew) in calls {
                let time = UNIX_EPOCH + Duration::from_millis(time);
                let clock = time + Duration::from_millis(skew);
                let is_due = !schedule.is_early(clock) && !schedule.is_over(clock);
                if is_due && time >= kept_until {
                    // At least: the command may fail, or its host die. A record lasts longer.
                    kept_until = time + schedule.left(clock, 2);
                    prop_assert!(schedule.record(clock) >= schedule.left(clock, 2));
                    runs += 1;
                }
            }
            prop_assert!(runs <= 1, "{} runs", runs);
        }
    }
}
