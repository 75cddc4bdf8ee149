//! Reads the tick of a job from the command line, or takes the multiple of the window that is nearest to the clock.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use humantime::{format_rfc3339_seconds, parse_rfc3339_weak};

/// The last second that RFC 3339 can write: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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

    pub(crate) fn time(self) -> SystemTime {
        self.0
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

    #[test]
    fn a_tick_is_ancient_after_a_year() {
        let tick = Tick(at(1_795_744_800));
        let year = tick.0 + DAY * 366;
        for (now, expected) in [(UNIX_EPOCH, false), (year, false), (year + DAY, true)] {
            assert_eq!(tick.is_ancient(now), expected, "{now:?}");
        }
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
    }
}
