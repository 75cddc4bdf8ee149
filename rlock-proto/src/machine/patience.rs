//! How long a call that is not polled keeps what it has: by when it has to act, and what extends that.

use std::time::Duration;

use crate::{lease::Time, store::GRACE};

/// How long a call may take until its next request, including its pauses after failures.
pub(super) const IDLE: Duration = GRACE.saturating_mul(2);

/// The time by which a call acts next. If it has not acted by then, its future is not being polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Patience {
    acts_by: Time,
    /// Whether that time was extended once, because all of the process may have stood still.
    is_reminded: bool,
}

impl Patience {
    /// Returns the patience with a call that was polled and acts again by itself at this time.
    pub(super) fn until(next: Time) -> Self {
        Self {
            acts_by: next + IDLE,
            is_reminded: false,
        }
    }

    /// Gives a call a grace period from now on, because it has got something.
    pub(super) fn extend(&mut self, now: Time) {
        self.acts_by = now + GRACE;
    }

    /// Leaves a call no more than a grace period, because it has been woken.
    pub(super) fn shorten(&mut self, now: Time) {
        self.acts_by = self.acts_by.min(now + GRACE);
    }

    /// Gives a call that is not polled its last grace period. Returns whether it had that already.
    pub(super) fn remind(&mut self, now: Time) -> bool {
        let was_reminded = std::mem::replace(&mut self.is_reminded, true);
        if !was_reminded {
            self.extend(now);
        }
        was_reminded
    }

    /// Returns the time by which the call acts next.
    pub(super) fn ends(&self) -> Time {
        self.acts_by
    }
}
