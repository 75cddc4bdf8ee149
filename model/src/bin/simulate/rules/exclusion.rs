//! At most one owner holds a lock, unless both modes tolerate each other; owners take no more permits than there are,
//! and a detached lock has no owner until its lease ends.

use rlock_model::witness::{Holder as _, excluded, takes_too_many};

use super::{Hold, Rule};
use crate::{key::Key, known::Detached, world::World};

const ONE_HOLDER: Rule = "at most one owner holds a lock";

impl World {
    /// Checks that no other hold relies on the lock.
    pub(super) fn excludes(&mut self, key: &Key, hold: Hold) {
        self.counts.holds += 1;
        let mut holds = self.holds(key);
        holds.retain(|other| !other.is_same(&hold));
        let void = self.void(key);
        let solid = || holds.iter().filter(|other| other.token > void);
        let other = excluded(&hold, &holds).next();
        let other = other.or_else(|| {
            solid()
                .next_back()
                .filter(|_| takes_too_many(&hold, solid()))
        });
        let other = other.copied();
        let detached = self.locks[key].detached;
        let detached = detached.filter(|hold| self.now < hold.until && hold.token > void);
        holds.push(hold);
        self.lock(key).holds = holds;
        if hold.token <= void || other.is_some_and(|other| other.token <= void) {
            self.counts.excused += 1;
        } else if let Some(Detached { token, .. }) = detached {
            let what =
                format!("{key}: {hold:?} begins before the end of {token}, which was detached");
            self.breaks(ONE_HOLDER, what);
        } else if let Some(other) = other {
            let what = format!("{key}: {hold:?} at the same time as {other:?}");
            self.breaks(ONE_HOLDER, what);
        }
    }
}
