//! When the background sends a count, a downgrade or a release again: one try is under way at a time, and a growing pause
//! follows each failure.

use std::time::Duration;

use crate::{lease::Time, wait::Spread};

/// The tries of the requests that tell the store about an owner: its count or downgrade, and in the end its release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tries {
    under_way: Option<Try>,
    failures: u32,
    /// When the next try may begin.
    not_before: Time,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Try {
    request: u64,
    sent_at: Time,
    /// By when it has a reply. The background always replies, whereas a call may not be polled.
    answered_by: Time,
}

impl Tries {
    /// Returns tries that begin at this time.
    pub(super) fn from(not_before: Time) -> Self {
        let none = Self::default();
        Self { not_before, ..none }
    }

    /// Begins a try with this request.
    pub(super) fn sent(&mut self, request: u64, sent_at: Time, answered_by: Time) {
        self.under_way = Some(Try {
            request,
            sent_at,
            answered_by,
        });
    }

    /// Ends the try with this request, and returns when it was sent. Returns `None` if it is not the one under way.
    pub(super) fn answered(&mut self, request: u64) -> Option<Time> {
        let answered = self.under_way.take_if(|sent| sent.request == request)?;
        Some(answered.sent_at)
    }

    /// Forgets the request of a call, whose future may never be polled again. Returns when it was sent, or `None` without one.
    pub(super) fn forget_call(&mut self, now: Time) -> Option<Time> {
        let is_of_call = |sent: &mut Try| sent.answered_by != Time::NEVER;
        let forgotten = self.under_way.take_if(is_of_call)?;
        self.failed(now, Spread::default());
        Some(forgotten.sent_at)
    }

    /// Makes the next try follow after a pause, which grows with the number of failures.
    pub(super) fn failed(&mut self, now: Time, spread: Spread) {
        self.not_before = now + spread.after_failures(self.failures);
        self.failures += 1;
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Puts the next try off for this long, unless it waits already.
    pub(super) fn put_off(&mut self, now: Time, pause: Duration) {
        if now >= self.not_before {
            self.not_before = now + pause;
        }
    }

    /// Begins the next try at this time.
    pub(super) fn follow_at(&mut self, at: Time) {
        self.not_before = at;
    }

    pub(super) fn have_failed(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns when the background has to try, or has to look at the one under way.
    pub(super) fn due(&self) -> Time {
        self.under_way
            .map_or(self.not_before, |sent| sent.answered_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_try_follows_after_pauses_that_grow_until_one_succeeds() {
        let start = Time::from_nanos(0);
        let mut tries = Tries::from(start);
        let pause = |tries: &mut Tries| {
            tries.failed(start, Spread::default());
            tries.due().since(start)
        };
        let first = pause(&mut tries);
        assert!(pause(&mut tries) > first && tries.have_failed());
        tries.succeeded();
        assert_eq!(pause(&mut tries), first);
    }

    #[test]
    fn one_try_is_under_way_until_its_own_reply() {
        let at = |ms| Time::from(Duration::from_millis(ms));
        let mut tries = Tries::from(at(5));
        assert!(!tries.is_under_way() && !tries.have_failed());
        assert_eq!(tries.due(), at(5));
        tries.follow_at(at(7));
        assert_eq!(tries.due(), at(7));
        tries.sent(3, at(8), at(9));
        assert_eq!((tries.due(), tries.answered(2)), (at(9), None));
        assert!(tries.is_under_way());
        assert_eq!(tries.answered(3), Some(at(8)));
        assert!(!tries.is_under_way());
    }

    #[test]
    fn a_try_that_waits_is_not_put_off_again() {
        let (start, pause) = (Time::from_nanos(0), Duration::from_millis(20));
        let mut tries = Tries::from(start);
        tries.put_off(start, pause);
        tries.put_off(start + pause / 2, pause);
        assert_eq!(tries.due(), start + pause);
    }
}
