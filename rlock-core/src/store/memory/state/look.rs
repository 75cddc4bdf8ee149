//! What only tests see and do.

use std::time::Duration;

use super::State;
use crate::{key::Key, lease::Time, owner::OwnerId};

impl State {
    /// Who stands in line.
    pub(in crate::store::memory) fn line(&self, key: &Key) -> Vec<OwnerId> {
        let line = self.lines.get(key).into_iter().flatten();
        line.map(|(owner, _)| *owner).collect()
    }

    /// Makes everything that happened, and that is to end, so much earlier: as if the time went by.
    pub(in crate::store::memory) fn pass(&mut self, time: Duration) {
        let by = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let earlier = |at: Time| Time::from_nanos(at.nanos().saturating_sub(by));
        for lock in self.locks.values_mut() {
            lock.expires = earlier(lock.expires);
        }
        for (_, since) in self.lines.values_mut().flatten() {
            *since = earlier(*since);
        }
    }
}
