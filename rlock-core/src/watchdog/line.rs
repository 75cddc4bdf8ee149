//! Whether a renewal stands in line at the store, or is not to be counted on any more.

use crate::lease::Time;
use std::time::Duration;

/// What was answered last. Renewals are answered in the order of sending.
pub(super) struct Line {
    /// When the latest request that was answered had been sent.
    sent: Time,
    /// When it was answered.
    answered: Time,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            sent: Time::from_nanos(0),
            answered: Time::from_nanos(0),
        }
    }
}

impl Line {
    /// An answer came.
    pub(super) fn moved(&mut self, sent: Time, now: Time) {
        self.sent = self.sent.max(sent);
        self.answered = now;
    }

    /// Whether a request that was sent at `sent` stands in a line which moves: others are answered, the
    /// latest less than `pause` ago, but none yet that was sent after it.
    ///
    /// A server that has more to do than it can would never catch up if all that wait in line were asked
    /// for again. One that says nothing is asked again.
    pub(super) fn holds(&self, sent: Time, now: Time, pause: Duration) -> bool {
        sent >= self.sent && now.since(self.answered) < pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_request_is_in_line_while_earlier_ones_are_answered_and_no_later_one_is() {
        const PAUSE: Duration = Duration::from_millis(10);
        let mut line = Line::default();
        assert!(!line.holds(at(100), at(105), PAUSE), "nothing was answered");
        line.moved(at(90), at(104));
        assert!(line.holds(at(100), at(105), PAUSE));
        assert!(
            !line.holds(at(100), at(114), PAUSE),
            "the line stands still"
        );
        line.moved(at(101), at(114));
        assert!(!line.holds(at(100), at(115), PAUSE), "it was passed over");
        assert!(line.holds(at(102), at(115), PAUSE));
    }
}
