//! The measured quantities, and how each is written.

use serde::Serialize;

/// The figures of one round.
pub(crate) type Figures = Vec<(Metric, f64)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Microseconds for one acquire and release.
    PairP50,
    PairP99,
    /// Microseconds from the call of acquire to the grant.
    AcquireP50,
    AcquireP99,
    PairsPerSecond,
    ChangesPerSecond,
    /// Acquires and releases of a shared lock.
    ReadsPerSecond,
    /// Commands that clients send.
    CommandsPerChange,
    /// Commands that clients send and that scripts call.
    ExecutedPerChange,
    ExecutedPerRead,
    /// The longest time inside a shared lock in milliseconds.
    LongestRead,
    /// Milliseconds from the call of acquire to the grant.
    WaitP50,
    WaitP99,
    WaitMax,
    WaitP99OverP50,
    /// The largest number of entries of a task, divided by the smallest.
    MostOverLeast,
    Violations,
    /// Processor time in milliseconds for each second.
    ProcessorTime,
    /// The processor time of the server in milliseconds for each second.
    ServerProcessorTime,
    CommandsPerSecond,
    BytesPerLock,
    /// Resident bytes of a lock in the last window minus those in the first.
    Growth,
    /// Held locks that ended.
    Lost,
}

impl Metric {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::PairP50 => "p50 µs",
            Self::PairP99 => "p99 µs",
            Self::AcquireP50 => "acquire p50 µs",
            Self::AcquireP99 => "acquire p99 µs",
            Self::PairsPerSecond => "pairs/s",
            Self::ChangesPerSecond => "changes/s",
            Self::ReadsPerSecond => "reads/s",
            Self::CommandsPerChange => "commands/change",
            Self::ExecutedPerChange => "executed/change",
            Self::ExecutedPerRead => "executed/read",
            Self::LongestRead => "longest read ms",
            Self::WaitP50 => "wait p50 ms",
            Self::WaitP99 => "wait p99 ms",
            Self::WaitMax => "wait max ms",
            Self::WaitP99OverP50 => "p99/p50",
            Self::MostOverLeast => "most/least served",
            Self::Violations => "violations",
            Self::ProcessorTime => "CPU ms/s",
            Self::ServerProcessorTime => "server CPU ms/s",
            Self::CommandsPerSecond => "commands/s",
            Self::BytesPerLock => "bytes/lock",
            Self::Growth => "growth, bytes/lock",
            Self::Lost => "lost",
        }
    }

    /// Returns whether its ratio to the floor matters.
    pub(crate) fn compares(self) -> bool {
        matches!(
            self,
            Self::PairP50
                | Self::PairP99
                | Self::AcquireP50
                | Self::AcquireP99
                | Self::PairsPerSecond
                | Self::ChangesPerSecond
                | Self::ReadsPerSecond
                | Self::WaitP99
                | Self::ProcessorTime
                | Self::ServerProcessorTime
                | Self::BytesPerLock
        )
    }

    /// Returns whether a larger value is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::PairsPerSecond | Self::ChangesPerSecond | Self::ReadsPerSecond
        )
    }

    /// Summarises several rounds: by the median, or by the worst value of an extreme; NaN without rounds.
    pub(crate) fn summary(self, rounds: &[f64]) -> f64 {
        match self {
            _ if rounds.is_empty() => f64::NAN,
            Self::WaitMax => rounds.iter().copied().fold(f64::NAN, f64::max),
            Self::Violations => rounds.iter().sum(),
            _ => crate::statistics::median(rounds),
        }
    }

    pub(crate) fn show(self, value: f64) -> String {
        if value.is_nan() {
            return "–".to_owned();
        }
        if value.is_infinite() {
            return "∞".to_owned();
        }
        match self {
            Self::PairP50 | Self::PairP99 | Self::AcquireP50 | Self::AcquireP99 => {
                format!("{value:.1}")
            }
            Self::PairsPerSecond
            | Self::ChangesPerSecond
            | Self::ReadsPerSecond
            | Self::CommandsPerSecond
            | Self::BytesPerLock => thousands(value),
            Self::Violations | Self::Lost => format!("{value:.0}"),
            Self::Growth => format!("{value:+.1}"),
            Self::CommandsPerChange | Self::ExecutedPerChange if value >= 10.0 => {
                format!("{value:.1}")
            }
            Self::CommandsPerChange | Self::ExecutedPerChange | Self::ExecutedPerRead
                if value < 0.1 =>
            {
                format!("{value:.4}")
            }
            Self::WaitP50 | Self::WaitP99 | Self::WaitMax | Self::LongestRead if value >= 10.0 => {
                format!("{value:.0}")
            }
            _ => format!("{value:.2}"),
        }
    }
}

/// Formats a whole number with separators: `12,345`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index) % 3 == 0 && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn thousands_are_apart() {
        let shown = [0.0, 999.4, 1000.0, -1234.0, 1_234_567.0].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "-1,234", "1,234,567"]);
    }
}
