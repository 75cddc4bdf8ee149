//! Compares a server's clock with the client's, and measures the round trip.

use std::time::{Duration, Instant, SystemTime};

use redis::{RedisResult, aio::MultiplexedConnection, cmd};

use super::findings::Finding;
use crate::store::redis::errors::without_kind;

/// How many requests measure the round trip, and how long they may take together.
const ROUND_TRIPS: usize = 101;
const LONGEST: Duration = Duration::from_secs(3);
/// A clock that is further away is remarked.
const FAR: Duration = Duration::from_secs(1);

/// The server's time, and when it was asked for.
pub(super) struct Time {
    round_trip: Duration,
    local: SystemTime,
    remote: SystemTime,
}

/// Asks for the server's time again and again.
pub(super) async fn times(connection: &mut MultiplexedConnection) -> Result<Vec<Time>, String> {
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    let start = Instant::now();
    while times.len() < ROUND_TRIPS && start.elapsed() < LONGEST {
        let (began, local) = (Instant::now(), SystemTime::now());
        let reply: RedisResult<(u64, u32)> = cmd("TIME").query_async(connection).await;
        let (seconds, micros) = reply.map_err(|error| without_kind(&error))?;
        times.push(Time {
            round_trip: began.elapsed(),
            local,
            remote: SystemTime::UNIX_EPOCH
                + Duration::new(seconds, micros.saturating_mul(1_000).min(999_999_999)),
        });
    }
    times.sort_unstable_by_key(|time| time.round_trip);
    Ok(times)
}

/// Compares the server's clock with that of this machine, by the quickest reply.
pub(super) fn offset(times: &Result<Vec<Time>, String>) -> Finding {
    const CHECK: &str = "clock";
    let time = match times.as_deref() {
        Ok([time, ..]) => time,
        Ok([]) => return Finding::advice(CHECK, "unknown"),
        Err(reason) => return Finding::advice(CHECK, format!("unknown: {reason}")),
    };
    let between = time.local + time.round_trip / 2;
    let (side, offset) = match time.remote.duration_since(between) {
        Ok(ahead) => ("ahead of", ahead),
        Err(error) => ("behind", error.duration()),
    };
    let text = format!(
        "{} ms {side} this machine's, ± {} ms",
        millis(offset),
        millis(time.round_trip / 2)
    );
    if offset > FAR {
        let advice = "let chrony or ntpd slew both clocks, because a jump ends leases early";
        return Finding::advice(CHECK, text).with_remedy(advice);
    }
    Finding::good(CHECK, text)
}

pub(super) fn round_trip(times: &Result<Vec<Time>, String>) -> Finding {
    const CHECK: &str = "round trip";
    match times.as_deref() {
        Ok(times @ [.., slowest]) => {
            let median = &times[times.len() / 2];
            let text = format!(
                "p50 {} ms, slowest of {} {} ms",
                millis(median.round_trip),
                times.len(),
                millis(slowest.round_trip)
            );
            Finding::good(CHECK, text)
        }
        Ok([]) => Finding::advice(CHECK, "unknown"),
        Err(reason) => Finding::advice(CHECK, format!("unknown: {reason}")),
    }
}

/// Shows milliseconds with two digits behind the point.
fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::{super::findings::Severity, *};

    fn time(offset: i64, round_trip: u64) -> Time {
        let local = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let offset_by = Duration::from_millis(offset.unsigned_abs());
        let between = local + Duration::from_millis(round_trip) / 2;
        Time {
            round_trip: Duration::from_millis(round_trip),
            local,
            remote: if offset < 0 {
                between - offset_by
            } else {
                between + offset_by
            },
        }
    }

    #[test]
    fn a_clock_is_compared_by_the_quickest_reply() {
        for (millis, severity, expected) in [
            (
                0,
                Severity::Good,
                "0.00 ms ahead of this machine's, ± 5.00 ms",
            ),
            (-900, Severity::Good, "900.00 ms behind this machine's"),
            (
                3_000,
                Severity::Advice,
                "3000.00 ms ahead of this machine's",
            ),
            (
                -3_000,
                Severity::Advice,
                "let chrony or ntpd slew both clocks",
            ),
        ] {
            let finding = offset(&Ok(vec![time(millis, 10), time(70_000, 20)]));
            assert_eq!(finding.severity, severity, "{millis}: {finding:?}");
            assert!(
                finding.to_string().contains(expected),
                "{millis}: {finding:?}"
            );
        }
        let refused = offset(&Err("NOPERM".to_owned()));
        assert_eq!(refused.severity, Severity::Advice);
    }
}
