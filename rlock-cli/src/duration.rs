//! Parses durations on the command line, such as `500ms` or `1h 30m`.

use std::{ops::RangeInclusive, time::Duration};

use clap::Args;
use tokio::time::Instant;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait that is not `forever`.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    For(Duration),
    Forever,
}

impl Limit {
    /// Returns what is left of the limit, or `None` if there is no limit.
    pub(crate) fn left(self, started: Instant) -> Option<Duration> {
        match self {
            Self::For(limit) => Some(limit.saturating_sub(started.elapsed())),
            Self::Forever => None,
        }
    }
}

/// The option `--wait`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitOption {
    /// How long to wait: a duration, or `forever`
    #[arg(
        short,
        long,
        env = "RLOCK_WAIT",
        value_name = "DURATION",
        default_value = "forever",
        value_parser = wait
    )]
    pub(crate) wait: Limit,
}

fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number and a unit, as `500ms`, `30s` or `2h`"))
}

fn within(text: &str, bounds: RangeInclusive<Duration>, rule: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if bounds.contains(&time) {
        Ok(time)
    } else {
        Err(rule.to_owned())
    }
}

pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(10)..=DAY;
    within(text, bounds, "a lease is between 10ms and 24h")
}

pub(crate) fn min_hold(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO..=DAY, "a lock is kept for 24h at most")
}

pub(crate) fn window(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_secs(1)..=DAY / 3;
    // A call may come a window before its tick, and the lock is kept until two windows after it.
    within(
        text,
        bounds,
        "a window is between 1s and 8h, because a lock is kept for three windows, and for 24h at most",
    )
}

pub(crate) fn max_hold(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_nanos(1)..=Duration::MAX;
    within(text, bounds, "a lock that is held takes some time")
}

pub(crate) fn wait(text: &str) -> Result<Limit, String> {
    if text == "forever" {
        return Ok(Limit::Forever);
    }
    let bounds = Duration::ZERO..=LONGEST_WAIT;
    let rule = "a wait is at most 366 days; `forever` has no limit";
    within(text, bounds, rule).map(Limit::For)
}

pub(crate) fn kill_after(text: &str) -> Result<Duration, String> {
    within(
        text,
        Duration::ZERO..=DAY,
        "the command is killed after 24h at most",
    )
}

pub(crate) fn response_timeout(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
    within(text, bounds, "a time-out is between 1ms and 1m")
}

pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(100)..=DAY;
    within(text, bounds, "an interval is between 100ms and 24h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_a_unit_or_is_forever() {
        assert_eq!(wait("forever"), Ok(Limit::Forever));
        assert_eq!(wait("1m 30s"), Ok(Limit::For(Duration::from_secs(90))));
        assert_eq!(wait("0s"), Ok(Limit::For(Duration::ZERO)));
        assert!(wait("5").unwrap_err().contains("`30s`"));
        assert!(wait("367days").unwrap_err().contains("366 days"));
    }

    #[test]
    fn durations_out_of_bounds_are_refused_with_the_bounds() {
        assert!(lease("9ms").unwrap_err().contains("10ms"));
        assert!(lease("25h").unwrap_err().contains("24h"));
        assert!(min_hold("25h").is_err());
        assert!(max_hold("0s").is_err());
        assert!(kill_after("0s").is_ok());
        assert!(window("8h").is_ok());
        assert!(window("8h 1s").unwrap_err().contains("8h"));
        assert!(response_timeout("0s").unwrap_err().contains("1ms"));
        assert!(interval("99ms").unwrap_err().contains("100ms"));
    }
}
