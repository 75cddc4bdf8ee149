//! A member of a quorum that has come back gets the locks of present holds by the next renewals.

use std::time::Duration;

use super::Rule;
use crate::{
    key::Key,
    world::{MS, World},
};

const RESTORED: Rule = "a member of a quorum that has come back gets the locks of present holds";

impl World {
    /// Checks that a member which has no lock for a present hold gets it by the next renewals.
    pub(super) fn audit_restored(&mut self, server: usize, key: &Key) {
        let may_lack = self.may_be_lost() || !self.is_always_renewed();
        if !self.is_quorum() || may_lack || self.is_over {
            return;
        }
        let is_free = self
            .stored(server, key)
            .is_none_or(|stored| stored.owner.is_empty());
        let (now, holds) = (self.now, self.holds(key));
        let lacks = is_free && !holds.is_empty() && self.servers[server].down_until <= now;
        let limit = u64::from(self.plan.longest_lease()) * MS + 1_000 * MS;
        let (members, lock) = (self.servers.len(), self.lock(key));
        lock.holds = holds;
        lock.lacks.resize(members, now);
        if !lacks {
            lock.lacks[server] = now;
        } else if now - lock.lacks[server] > limit {
            let since = Duration::from_nanos(now - lock.lacks[server]);
            let what = format!(
                "{key}: server {server} lacks {:?} for {since:?}",
                lock.holds
            );
            self.breaks(RESTORED, what);
        }
    }

    /// Notes that another owner had a lock of a member just now.
    pub(crate) fn occupied(&mut self, server: usize, key: &Key) {
        let now = self.now;
        if let Some(since) = self.lock(key).lacks.get_mut(server) {
            *since = now;
        }
    }
}
