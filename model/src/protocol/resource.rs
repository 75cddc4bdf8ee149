//! A resource that refuses writes with a lower token than it has seen.

use super::tokens::TokenRange;
use crate::owner::OwnerId;

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    highest: u64,
    /// The hold of the last write, by the order of its fence and by its token. Ignores the check of
    /// tokens.
    latest: Option<(usize, u64)>,
    /// Like `latest`, with the check of tokens.
    latest_accepted: Option<(usize, u64)>,
    /// A write arrived after a write of a later hold.
    pub(super) saw_stale: bool,
    /// Such a write was accepted.
    pub(super) accepted_stale: bool,
}

impl Resource {
    pub(super) fn write(&mut self, granted: &[TokenRange], owner: OwnerId, token: u64) {
        let Some(fence) = granted.iter().rposition(|tokens| tokens.has(owner, token)) else {
            return;
        };
        let hold = (fence, token);
        self.saw_stale |= self.latest.is_some_and(|latest| hold < latest);
        self.latest = self.latest.max(Some(hold));
        if token < self.highest {
            return;
        }
        self.highest = token;
        self.accepted_stale |= self.latest_accepted.is_some_and(|latest| hold < latest);
        self.latest_accepted = self.latest_accepted.max(Some(hold));
    }
}
