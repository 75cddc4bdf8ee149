//! The fencing tokens of an ownership. Each hold takes the next token.

use crate::store::TokenBlock;

/// The least number of tokens of an extension. It doubles with each extension of an ownership.
const LEAST: u64 = 32;
/// The largest number of tokens of an extension.
const MOST: u64 = 4096;

/// The remaining tokens that the store reserved for an owner.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The next token, while it is not larger than the end.
    next: u64,
    end: u64,
    /// The tokens after these, from an extension.
    beyond: Option<TokenBlock>,
    /// The largest token that the store is known to have reserved, and its fence then.
    last: u64,
    fence: u64,
    extending: bool,
    /// The number of tokens of the extension before.
    extended_by: u64,
}

impl Tokens {
    /// Adds the tokens of a grant. The same grant again adds nothing: some of its tokens may be used.
    pub(super) fn granted(&mut self, block: TokenBlock) {
        if block.last() > self.last {
            (self.next, self.end) = (block.first.max(self.last + 1), block.last());
            self.beyond = None;
            self.reserved(block);
        }
    }

    /// Adds the tokens of an extension.
    pub(super) fn extended(&mut self, block: TokenBlock) {
        self.extending = false;
        if block.size > 0 && block.first > self.last {
            self.beyond = Some(block);
            self.reserved(block);
        }
    }

    fn reserved(&mut self, block: TokenBlock) {
        (self.last, self.fence) = (block.last(), block.fence());
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.next > self.end || self.next == 0 {
            let block = self.beyond.take()?;
            (self.next, self.end) = (block.first, block.last());
        }
        let token = self.next;
        self.next += 1;
        Some(token)
    }

    /// Returns the last known value of the store's fence, or 0 without a grant. A release sends it.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns whether this block belongs to a later grant than these tokens.
    pub(super) fn are_before(&self, block: TokenBlock) -> bool {
        self.last > 0 && block.last() > self.last
    }

    /// Returns whether a token is left or an extension is under way.
    pub(super) fn is_coming(&self) -> bool {
        self.is_left() || self.extending
    }

    /// Returns whether a token is left.
    pub(super) fn is_left(&self) -> bool {
        self.beyond.is_some() || self.next > 0 && self.next <= self.end
    }

    /// Returns the size of an extension, if one is due and none is under way. `holds` limits the holds that may follow.
    /// While callers wait, an extension is due sooner.
    pub(super) fn begin_extension(&mut self, callers_wait: bool, holds: u64) -> Option<u64> {
        let least = if callers_wait { LEAST / 2 } else { LEAST / 8 };
        // Half of the previous extension, so that the next tokens arrive before these run out.
        let low = least.max(self.extended_by / 2);
        let left = (self.end + 1).saturating_sub(self.next);
        if self.extending || self.beyond.is_some() || left > low || left >= holds {
            return None;
        }
        self.extending = true;
        self.extended_by = (self.extended_by * 2).clamp(LEAST, MOST);
        Some(self.extended_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(tokens: &mut Tokens) -> Vec<u64> {
        std::iter::from_fn(|| tokens.take()).collect()
    }

    #[test]
    fn each_token_of_a_grant_is_taken_once() {
        let mut tokens = Tokens::default();
        assert!(!tokens.is_left());
        let block = TokenBlock {
            first: 114,
            size: 3,
        };
        tokens.granted(block);
        assert!(tokens.is_left());
        assert_eq!(tokens.take(), Some(114));
        tokens.granted(block);
        assert_eq!(all(&mut tokens), [115, 116], "the same grant again");
        assert!(!tokens.is_left());
        assert_eq!(tokens.last, 116);
        assert_eq!(tokens.fence, 101);
    }

    #[test]
    fn a_later_grant_ends_what_was_left_and_begins_above_it() {
        let mut tokens = Tokens::default();
        tokens.granted(TokenBlock::granted(1));
        tokens.take();
        tokens.granted(TokenBlock::granted(5));
        assert_eq!(all(&mut tokens), [17, 18, 19, 20]);
    }

    #[test]
    fn an_extension_follows_what_is_left() {
        let mut tokens = Tokens::default();
        tokens.granted(TokenBlock::granted(1));
        for token in 1..=12 {
            assert_eq!(tokens.begin_extension(false, u64::MAX), None);
            assert_eq!(tokens.take(), Some(token));
        }
        assert_eq!(tokens.begin_extension(false, u64::MAX), Some(32));
        assert_eq!(
            tokens.begin_extension(true, u64::MAX),
            None,
            "one is under way"
        );
        tokens.extended(TokenBlock::extension(45, 2));
        assert_eq!(tokens.fence, 45);
        assert_eq!(all(&mut tokens), [13, 14, 15, 16, 59, 60]);
        assert_eq!(tokens.begin_extension(true, u64::MAX), Some(64));
        tokens.extended(TokenBlock::EMPTY);
        assert_eq!(tokens.begin_extension(true, u64::MAX), Some(128));
        tokens.extended(TokenBlock::EMPTY);
        assert_eq!(tokens.take(), None);
    }

    #[test]
    fn an_extension_is_due_at_once_where_callers_wait() {
        let mut tokens = Tokens::default();
        tokens.granted(TokenBlock::granted(1));
        assert_eq!(tokens.begin_extension(true, u64::MAX), Some(32));
    }

    #[test]
    fn no_extension_is_due_for_tokens_that_no_hold_takes() {
        let mut tokens = Tokens::default();
        tokens.granted(TokenBlock::granted(1));
        assert_eq!(tokens.begin_extension(true, 16), None);
        assert_eq!(tokens.begin_extension(true, 17), Some(32));
    }

    #[test]
    fn what_makes_no_sense_panics_nowhere() {
        let mut tokens = Tokens::default();
        tokens.granted(TokenBlock {
            first: u64::MAX - 1,
            size: 16,
        });
        assert_eq!(all(&mut tokens).len(), 1);
        tokens.extended(TokenBlock { first: 2, size: 1 });
        assert_eq!(tokens.take(), None, "it is older than what is known");
    }
}
