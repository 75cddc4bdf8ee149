//! A resource that keeps the highest token that it saw, and refuses writes with a lower one.

use crate::words::{Block, Owner, Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    highest: Token,
    /// Which hold wrote last, by the block of its token in the order in which they were given; without the
    /// check of tokens.
    latest: Option<(usize, Token)>,
    /// The same, with the check.
    latest_accepted: Option<(usize, Token)>,
    /// A write came after one of a later hold.
    pub(super) saw_stale: bool,
    /// And was accepted.
    pub(super) accepted_stale: bool,
}

impl Resource {
    pub(super) fn write(&mut self, blocks: &[Block], owner: Owner, token: Token) {
        let Some(block) = blocks.iter().rposition(|block| block.has(owner, token)) else {
            return;
        };
        let hold = (block, token);
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
