//! Words durations and lists of locks for errors and logs: `1.5s`, "`a`, `b`, `c` and 2 more".

use std::time::Duration;

use rlock_proto::escape_control::escape_control;

/// Names the first of these locks, which are shown as `Key::shown` returns them.
pub(crate) fn names<'k>(locks: impl ExactSizeIterator<Item = &'k str>) -> String {
    const MOST: usize = 3;
    let more = locks.len().saturating_sub(MOST);
    let named: Vec<_> = (locks.take(MOST))
        .map(|lock| format!("`{}`", escape_control(lock)))
        .collect();
    let named = named.join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Shows a duration rounded to milliseconds or, if it is short, to microseconds: `5s`, `1.5s`, `250ms`.
pub(crate) fn shown(duration: Duration) -> String {
    let unit = if duration < Duration::from_millis(10) {
        1_000
    } else {
        1_000_000
    };
    let half = Duration::from_nanos(unit / 2);
    let rounded = duration.saturating_add(half);
    let over = u64::from(rounded.subsec_nanos()) % unit;
    self::duration(rounded.saturating_sub(Duration::from_nanos(over)))
}

/// Shows a duration. `Debug` writes `0ns` for zero.
pub(crate) fn duration(duration: Duration) -> String {
    if duration.is_zero() {
        "0s".to_owned()
    } else {
        format!("{duration:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        for (nanos, text) in [
            (0, "0s"),
            (499, "0s"),
            (2_091_400, "2.091ms"),
            (1_500_400_000, "1.5s"),
            (4_999_999_640, "5s"),
        ] {
            assert_eq!(shown(Duration::from_nanos(nanos)), text);
        }
    }
}
