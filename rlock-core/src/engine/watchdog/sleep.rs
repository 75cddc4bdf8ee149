//! How long the timer sleeps, and what wakes it earlier.

use std::time::Duration;

use crate::lease::Time;

/// A timer that is later than this stood still while the machine slept. It may fire at any time.
const LATE: Duration = Duration::from_millis(5);

/// The current sleep of the timer.
///
/// Most ownerships are released before they are due. Waking the timer for each of them would cost every
/// acquire a switch of threads. After a deadline was set, the timer therefore wakes up after half the time to
/// the nearest deadline. Meanwhile an ownership that is due later does not wake it.
pub(super) struct Sleep {
    until: Time,
    /// The time to the nearest deadline that was set during this sleep.
    nearest: Option<Duration>,
}

impl Default for Sleep {
    fn default() -> Self {
        Self {
            until: Time::NEVER,
            nearest: None,
        }
    }
}

impl Sleep {
    /// Notes a new deadline. Returns whether to wake the timer, because it sleeps beyond the deadline, or
    /// stands still.
    pub(super) fn is_too_long_for(&mut self, at: Time, now: Time) -> bool {
        let ahead = at.since(now);
        self.nearest = Some(self.nearest.map_or(ahead, |nearest| nearest.min(ahead)));
        at < self.until || self.until + LATE < now
    }

    /// Begins a sleep until the next deadline, `longest` at most. Returns its duration, or `None` for a
    /// sleep until the timer is woken.
    pub(super) fn begin(
        &mut self,
        next: Option<Time>,
        now: Time,
        longest: Duration,
    ) -> Option<Duration> {
        let again = self.nearest.take().map(|ahead| now + ahead / 2);
        let next = next.into_iter().chain(again).min();
        self.until = next.map_or(Time::NEVER, |next| next.min(now + longest));
        next.map(|_| self.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(time: u64) -> Time {
        Time::from(ms(time))
    }

    #[test]
    fn holds_that_come_and_go_wake_the_timer_once() {
        let mut sleep = Sleep::default();
        assert!(sleep.is_too_long_for(at(20), at(0)), "no deadline yet");
        // All are released whenever the timer wakes up.
        let mut wakes_at = at(0);
        for time in 0..1_000 {
            let now = at(time);
            if now >= wakes_at {
                let pause = sleep.begin(None, now, LONGEST).expect("holds came");
                assert!(pause >= ms(10), "{pause:?}");
                wakes_at = now + pause;
            }
            assert!(!sleep.is_too_long_for(now + ms(20), now), "{time}");
        }
        // No further holds.
        assert_eq!(sleep.begin(None, at(1_000), LONGEST), Some(ms(10)));
        assert_eq!(sleep.begin(None, at(1_010), LONGEST), None);
    }

    #[test]
    fn a_hold_that_is_due_before_the_sleep_ends_wakes_the_timer() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(400)), at(0), LONGEST), Some(ms(400)));
        assert!(!sleep.is_too_long_for(at(400), at(100)));
        assert!(sleep.is_too_long_for(at(398), at(100)));
        assert_eq!(sleep.begin(Some(at(398)), at(100), LONGEST), Some(ms(149)));
    }

    #[test]
    fn a_timer_that_stood_still_while_the_machine_slept_is_woken() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(60_000)), at(0), LONGEST), Some(LONGEST));
        assert!(
            !sleep.is_too_long_for(at(1_100), at(1_000)),
            "it is about to wake up"
        );
        assert!(sleep.is_too_long_for(at(30_100), at(30_000)));
        assert_eq!(
            sleep.begin(Some(at(30_100)), at(30_000), LONGEST),
            Some(ms(50))
        );
    }

    #[test]
    fn the_timer_never_sleeps_longer_than_allowed() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(60_000)), at(0), LONGEST), Some(LONGEST));
        assert_eq!(sleep.begin(None, at(1_000), LONGEST), None);
    }
}
