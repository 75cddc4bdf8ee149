//! At most one owner holds a lock, unless both modes tolerate each other; owners take no more permits than there are,
//! and a detached lock has no owner until its lease ends.

use super::{Hold, Rule};
use crate::{key::Key, mode::LockMode, plan::MOST_PERMITS, world::World};

const ONE_HOLDER: Rule = "at most one owner holds a lock";

impl World {
    /// Checks that no other hold relies on the lock.
    pub(super) fn excludes(&mut self, key: &Key, hold: Hold) {
        self.counts.holds += 1;
        let mut holds = self.holds(key);
        let is_same = |other: &Hold| (other.client, other.owner) == (hold.client, hold.owner);
        holds.retain(|other| !is_same(other));
        let other = holds.iter().find(|other| !hold.tolerates(other)).copied();
        let void = self.void(key);
        let solid = holds.iter().filter(|other| other.token > void);
        let mut taken = hold.mode.permits_taken();
        let other = other.or_else(|| {
            let mut solid = solid.copied();
            solid.find(|other| {
                taken += other.mode.permits_taken();
                taken > MOST_PERMITS
            })
        });
        holds.push(hold);
        self.lock(key).holds = holds;
        if hold.token <= void || other.is_some_and(|other| other.token <= void) {
            self.counts.excused += 1;
        } else if self.now < self.locks[key].detached.1 && self.locks[key].detached.0 > void {
            let (detached, _) = self.locks[key].detached;
            let what =
                format!("{key}: {hold:?} begins before the end of {detached}, which was detached");
            self.breaks(ONE_HOLDER, what);
        } else if let Some(other) = other {
            let what = format!("{key}: {hold:?} at the same time as {other:?}");
            self.breaks(ONE_HOLDER, what);
        }
    }
}

impl Hold {
    /// Returns whether both may have the lock at once.
    fn tolerates(&self, other: &Self) -> bool {
        match (self.mode.permits(), other.mode.permits()) {
            (None, None) => self.mode == LockMode::Shared && other.mode == LockMode::Shared,
            (mine, theirs) => mine.is_some() && theirs.is_some(),
        }
    }
}
