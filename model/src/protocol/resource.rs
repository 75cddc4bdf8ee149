//! A resource that refuses writes with a lower token than it has seen.

use super::state::TokenRange;
use crate::words::{Owner, Token};

/// The resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    highest: Token,
    /// The hold of the last write, by the order of its fence and by its token. Ignores the check of
    /// tokens.
    latest: Option<(usize, Token)>,
    /// Like `latest`, with the check of tokens.
    latest_accepted: Option<(usize, Token)>,
    /// A write arrived after a write of a later hold.
    pub(super) saw_stale: bool,
    /// Such a write was accepted.
    pub(super) accepted_stale: bool,
}

impl Resource {
    pub(super) fn write(&mut self, granted: &[TokenRange], owner: Owner, token: Token) {
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
