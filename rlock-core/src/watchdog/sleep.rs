//! How long the timer sleeps, and what wakes it before.

use std::time::Duration;

use crate::lease::Time;

/// A timer that ought to have looked so long ago stood still while the machine slept: nobody knows when
/// it goes on.
const LATE: Duration = Duration::from_millis(5);

/// Holds that come and go are mostly gone when the timer looks. So that the next of them does not have
/// to wake it again, it looks again after half the time that the nearest was ahead.
pub(super) struct Sleep {
    until: Time,
    /// How far ahead the nearest appointment was that was made since the last look.
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
    /// An appointment was made. Answers whether the timer sleeps too long for it, or for nobody knows
    /// how long.
    pub(super) fn is_too_long_for(&mut self, at: Time, now: Time) -> bool {
        let ahead = at.since(now);
        self.nearest = Some(self.nearest.map_or(ahead, |nearest| nearest.min(ahead)));
        at < self.until || self.until + LATE < now
    }

    /// Until `next`, `look` at most; `None`: until it is woken.
    pub(super) fn begin(
        &mut self,
        next: Option<Time>,
        now: Time,
        look: Duration,
    ) -> Option<Duration> {
        let again = self.nearest.take().map(|ahead| now + ahead / 2);
        let next = next.into_iter().chain(again).min();
        self.until = next.map_or(Time::NEVER, |next| next.min(now + look));
        next.map(|_| self.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(time: u64) -> Time {
        Time::from(ms(time))
    }

    #[test]
    fn holds_that_come_and_go_wake_it_once() {
        let mut sleep = Sleep::default();
        assert!(sleep.is_too_long_for(at(20), at(0)), "nothing was there");
        // All are gone whenever it looks.
        let mut looks_at = at(0);
        for time in 0..1_000 {
            let now = at(time);
            if now >= looks_at {
                let pause = sleep.begin(None, now, LOOK).expect("they come and go");
                assert!(pause >= ms(10), "{pause:?}");
                looks_at = now + pause;
            }
            assert!(!sleep.is_too_long_for(now + ms(20), now), "{time}");
        }
        // Nobody comes any more.
        assert_eq!(sleep.begin(None, at(1_000), LOOK), Some(ms(10)));
        assert_eq!(sleep.begin(None, at(1_010), LOOK), None);
    }

    #[test]
    fn whoever_is_due_before_it_looks_again_wakes_it() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(400)), at(0), LOOK), Some(ms(400)));
        assert!(!sleep.is_too_long_for(at(400), at(100)));
        assert!(sleep.is_too_long_for(at(398), at(100)));
        assert_eq!(sleep.begin(Some(at(398)), at(100), LOOK), Some(ms(149)));
    }

    #[test]
    fn one_that_stood_still_while_the_machine_slept_is_woken() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(60_000)), at(0), LOOK), Some(LOOK));
        assert!(
            !sleep.is_too_long_for(at(1_100), at(1_000)),
            "it is just about to look"
        );
        assert!(sleep.is_too_long_for(at(30_100), at(30_000)));
        assert_eq!(
            sleep.begin(Some(at(30_100)), at(30_000), LOOK),
            Some(ms(50))
        );
    }

    #[test]
    fn it_looks_now_and_then_while_there_is_anything() {
        let mut sleep = Sleep::default();
        assert_eq!(sleep.begin(Some(at(60_000)), at(0), LOOK), Some(LOOK));
        assert_eq!(sleep.begin(None, at(1_000), LOOK), None);
    }
}
