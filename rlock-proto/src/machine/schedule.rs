//! The schedule: when to look at what.

use std::collections::BTreeMap;

use super::{CallId, Owner};
use crate::{key::Key, lease::Time};

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    Call(CallId),
    Own(Owner),
}

/// All deadlines. Each target has at most one, and knows it. That of an ownership is stored with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Schedule(BTreeMap<(Time, Target), Option<Key>>);

impl Schedule {
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first_key_value().map(|((at, _), _)| *at)
    }

    /// Makes sure that the target is looked at by this time. It may be earlier. `due`: its present deadline.
    pub(super) fn look_by(
        &mut self,
        at: Time,
        target: Target,
        key: Option<&Key>,
        due: &mut Option<Time>,
    ) {
        if at < due.unwrap_or(Time::NEVER) {
            self.remove(target, due);
            self.0.insert((at, target), key.cloned());
            *due = Some(at);
        }
    }

    pub(super) fn remove(&mut self, target: Target, due: &mut Option<Time>) {
        if let Some(at) = due.take() {
            self.0.remove(&(at, target));
        }
    }

    /// Takes the first deadline, if that has come, and its target.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Time, Target, Option<Key>)> {
        let first = self.0.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, target), key) = first.remove_entry();
        Some((at, target, key))
    }
}
