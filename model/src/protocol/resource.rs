//! A resource that keeps the highest token that it saw, and refuses writes with a lower one.

use crate::words::{Block, Owner, Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    highest: Token,
    /// Which grant, in the order in which they were made, wrote last; without the check of tokens.
    latest: Option<usize>,
    /// The same, with the check.
    latest_accepted: Option<usize>,
    /// A write came after one of a later grant.
    pub(super) saw_stale: bool,
    /// And was accepted.
    pub(super) accepted_stale: bool,
}

impl Resource {
    pub(super) fn write(&mut self, grants: &[Block], owner: Owner, token: Token) {
        let made = |grant: &Block| grant.owner == owner && grant.last == token;
        let Some(grant) = grants.iter().rposition(made) else {
            return;
        };
        self.saw_stale |= self.latest.is_some_and(|latest| grant < latest);
        self.latest = self.latest.max(Some(grant));
        if token < self.highest {
            return;
        }
        self.highest = token;
        self.accepted_stale |= self.latest_accepted.is_some_and(|latest| grant < latest);
        self.latest_accepted = self.latest_accepted.max(Some(grant));
    }
}
