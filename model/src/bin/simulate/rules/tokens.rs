//! Tokens grow with every hold, no two owners have the same one, and a resource that checks them refuses no rightful write.

use super::{Hold, Rule};
use crate::{key::Key, world::World};

const TOKENS_GROW: Rule = "tokens grow with every hold";
const OWN_TOKENS: Rule = "no two owners have the same token";
const NO_STALE_WRITE: Rule = "a resource that checks tokens refuses no rightful write";

impl World {
    /// Checks that the token of a hold that begins is larger than those before, and no other owner's.
    pub(super) fn tokens_grow(&mut self, key: &Key, hold: Hold) {
        let void = self.void(key);
        let tokens = &mut self.lock(key).tokens;
        let (before, same) = (
            tokens.not_below(&hold).copied(),
            tokens.same(&hold).copied(),
        );
        tokens.add(&hold);
        if hold.token <= void {
            return;
        }
        if let Some(before) = before {
            let what = format!("{key}: {hold:?} after the token {}", before.token);
            self.breaks(TOKENS_GROW, what);
        } else if let Some(first) = same {
            let what = format!("{key}: {hold:?} with the token of {first:?}");
            self.breaks(OWN_TOKENS, what);
        }
    }

    /// A write arrives at the resource of a key.
    pub(crate) fn writes(&mut self, key: &Key, hold: Hold) {
        let relies = self.relies(key, &hold);
        let lock = self.lock(key);
        let refused = lock.fence.write(hold.token);
        let is_void = hold.token <= lock.void;
        let Some(largest) = refused else { return };
        self.counts.stale_writes += 1;
        if relies && !is_void {
            let what = format!("{key}: {hold:?} is refused after {largest}");
            self.breaks(NO_STALE_WRITE, what);
        }
    }
}
