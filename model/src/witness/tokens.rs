//! Each hold has a larger token than all that began before it, except that those who share a lock have no order.
//!
//! A writer has a larger token than all readers before it, and each reader after it has a larger one. So it is with permits.

use std::collections::HashMap;

use super::Holder;
use crate::mode::LockMode;

/// The tokens of a key's holds so far.
#[derive(Clone, Debug)]
pub struct Tokens<H> {
    /// The holds with the largest tokens, and the one among those that began as exclusive holds.
    any: Option<H>,
    exclusive: Option<H>,
    /// The first hold with each token since the last exclusive one, whose token all later ones exceed.
    first_with: HashMap<u64, H>,
}

impl<H> Default for Tokens<H> {
    fn default() -> Self {
        Self {
            any: None,
            exclusive: None,
            first_with: HashMap::new(),
        }
    }
}

impl<H: Holder + Clone> Tokens<H> {
    /// Adds a hold after those that began before it.
    pub fn add(&mut self, hold: &H) {
        let is_larger = |largest: &H| hold.token() > largest.token();
        if hold.mode() == LockMode::Exclusive && self.exclusive.as_ref().is_none_or(is_larger) {
            self.exclusive = Some(hold.clone());
            self.first_with.clear();
        }
        if self.any.as_ref().is_none_or(is_larger) {
            self.any = Some(hold.clone());
        }
        let first = self.first_with.entry(hold.token());
        first.or_insert_with(|| hold.clone());
    }

    /// Returns the largest token.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.any.as_ref().map_or(0, Holder::token)
    }

    /// Returns the hold whose token this later hold should exceed, but does not.
    #[must_use]
    pub fn not_below(&self, hold: &H) -> Option<&H> {
        let before = if hold.mode() == LockMode::Exclusive {
            &self.any
        } else {
            &self.exclusive
        };
        let joins = |before: &H| before.token() == hold.token() && before.may_share_token(hold);
        let before = before.as_ref()?;
        (before.token() >= hold.token() && !joins(before)).then_some(before)
    }

    /// Returns another hold with the token of this one.
    #[must_use]
    pub fn same(&self, hold: &H) -> Option<&H> {
        let first = self.first_with.get(&hold.token())?;
        (!first.is_same(hold) && !first.may_share_token(hold)).then_some(first)
    }

    /// Marks a hold as shared, because holds that join it have its token.
    pub fn downgraded(&mut self, hold: &H) {
        let largest = [&mut self.any, &mut self.exclusive];
        let first = self.first_with.get_mut(&hold.token());
        let known = largest.into_iter().flatten().chain(first);
        for known in known.filter(|known| known.is_same(hold)) {
            *known = hold.clone();
        }
    }
}
