//! What only tests see and do.

use std::time::Duration;

use super::State;
use crate::{key::Key, lease::Time, owner::OwnerId};

impl State {
    /// Who stands in line.
    pub(in crate::store::memory) fn line(&self, key: &Key) -> Vec<OwnerId> {
        let line = self.lines.0.get(key).into_iter().flatten();
        line.map(|(owner, _)| *owner).collect()
    }

    /// Makes everything that happened, and that is to end, so much earlier: as if the time went by.
    pub(in crate::store::memory) fn pass(&mut self, time: Duration) {
        let earlier = |at: Time| Time::from(at.since(Time::from_nanos(0) + time));
        for lock in self.locks.values_mut() {
            lock.expires = earlier(lock.expires);
        }
        for (_, since) in self.lines.0.values_mut().flatten() {
            *since = earlier(*since);
        }
    }
}
