//! Tokens grow with every hold, no two owners have the same one, and a resource that checks them refuses no rightful write.

use super::{Hold, Rule};
use crate::{key::Key, mode::LockMode, world::World};

const TOKENS_GROW: Rule = "tokens grow with every hold";
const OWN_TOKENS: Rule = "no two owners have the same token";
const NO_STALE_WRITE: Rule = "a resource that checks tokens refuses no rightful write";

impl World {
    /// Checks that the token of a hold that begins is larger than those before, and no other owner's.
    pub(super) fn tokens_grow(&mut self, key: &Key, hold: Hold) {
        let client = &mut self.clients[hold.client];
        client.largest_token = client.largest_token.max(hold.token);
        let void = self.void(key);
        let lock = self.lock(key);
        let is_exclusive = hold.mode == LockMode::Exclusive;
        // Those who share a lock need only have larger tokens than the exclusive holders before.
        let last = if is_exclusive {
            lock.last_token
        } else {
            lock.last_exclusive
        };
        lock.last_token = lock.last_token.max(hold.token);
        if is_exclusive {
            lock.last_exclusive = lock.last_exclusive.max(hold.token);
        }
        let first = *lock.first_with.entry(hold.token).or_insert(hold);
        if hold.token <= void {
            return;
        }
        if hold.token <= last {
            let what = format!("{key}: {hold:?} after the token {last}");
            self.breaks(TOKENS_GROW, what);
        } else if !first.is_of_same_owner(&hold) && !self.may_have_same_token(&hold) {
            let what = format!("{key}: {hold:?} with the token of {first:?}");
            self.breaks(OWN_TOKENS, what);
        }
    }

    /// Returns whether another owner may have this hold's token: the members of a quorum count by clocks of their own.
    fn may_have_same_token(&self, hold: &Hold) -> bool {
        self.is_quorum() && hold.mode == LockMode::Shared
    }

    /// A write arrives at the resource of a key.
    pub(crate) fn writes(&mut self, key: &Key, hold: Hold) {
        let relies = self.relies(key, &hold);
        let lock = self.lock(key);
        let is_refused = hold.token < lock.highest;
        lock.highest = lock.highest.max(hold.token);
        let (highest, is_void) = (lock.highest, hold.token <= lock.void);
        self.counts.stale_writes += u64::from(is_refused);
        if is_refused && relies && !is_void {
            let what = format!("{key}: {hold:?} is refused after {highest}");
            self.breaks(NO_STALE_WRITE, what);
        }
    }
}

impl Hold {
    fn is_of_same_owner(&self, other: &Self) -> bool {
        (self.client, self.life, self.owner) == (other.client, other.life, other.owner)
    }
}
