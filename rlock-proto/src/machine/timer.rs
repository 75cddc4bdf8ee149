//! The deadlines of calls and keys: which one comes next, and why.

use std::collections::BTreeMap;

use super::{CallId, SlotId};
use crate::lease::Time;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The lease of an ownership ends: its hold is lost.
    LeaseEnd,
    /// The `max_hold` of a hold ends: the hold is lost.
    MaxHold,
    /// A retained lock has waited long enough for the next call.
    RetentionEnd,
    /// The lease of an ownership is due for renewal, or the store has to confirm it.
    Renewal,
    /// The store has to be told how many entries a hold has, or that it shares its lock.
    Count,
    /// The background sends a release, gives it up, or stops waiting for the call that sent it.
    Release,
    /// The wait or the pause of a call ends.
    Wake,
    /// A call that has something others wait for has not been polled in time.
    Unpolled,
}

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    Call(CallId),
    Slot(SlotId),
}

/// All deadlines. Each target has at most one, and knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Schedule(BTreeMap<(Time, Target), Timer>);

impl Schedule {
    /// Returns the first deadline, and its purpose.
    pub(super) fn first(&self) -> Option<(Time, Timer)> {
        let ((at, _), timer) = self.0.first_key_value()?;
        Some((*at, *timer))
    }

    /// Makes sure that the target is looked at by this time. It may be earlier. `due`: its present deadline.
    pub(super) fn look_by(
        &mut self,
        (at, timer): (Time, Timer),
        target: Target,
        due: &mut Option<Time>,
    ) {
        if at < due.unwrap_or(Time::NEVER) {
            self.remove(target, due);
            self.0.insert((at, target), timer);
            *due = Some(at);
        }
    }

    pub(super) fn remove(&mut self, target: Target, due: &mut Option<Time>) {
        if let Some(at) = due.take() {
            self.0.remove(&(at, target));
        }
    }

    /// Removes the first deadline if it has come, and returns it with its target.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Time, Target)> {
        let first = self.0.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove_entry().0)
    }
}
