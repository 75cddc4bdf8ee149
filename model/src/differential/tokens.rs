//! The tokens of each side.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observed, Operation, Reply, agree::Past};
use crate::words::{
    Acquire, Acquired, BLOCK, Entry, Extended, HandOff, Holder, Key, Notification, Owner, Released,
    Token,
};

/// The tokens of one side.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The last fence that each owner knows.
    known: BTreeMap<(Key, Owner), Token>,
    /// The grants of each key, in order, with their first token.
    grants: BTreeMap<Key, Vec<(Owner, Token)>>,
    /// The lower bound of later tokens.
    floor: BTreeMap<Key, Token>,
    released: BTreeSet<(Key, Owner)>,
    /// The keys after the last step.
    entries: Vec<Option<Entry>>,
}

impl Side {
    /// Returns the last token that the owner of a release knows.
    pub(super) fn token_for(&self, operation: &Operation) -> Token {
        let Operation::Release(ask) = operation else {
            return 0;
        };
        self.known.get(&(ask.key, ask.owner)).copied().unwrap_or(0)
    }

    /// Returns the state of the owner of a release.
    pub(super) fn past(&self, operation: &Operation) -> Past {
        let Operation::Release(ask) = operation else {
            return Past::default();
        };
        let entry = self.entries.get(usize::from(ask.key)).copied().flatten();
        Past {
            holds: entry.is_some_and(|entry| entry.holder == Holder::Owner(ask.owner)),
            released: self.released.contains(&(ask.key, ask.owner)),
        }
    }

    /// Records the grants of a step. Grants by hand-off come before that of the request.
    pub(super) fn note(&mut self, operation: &Operation, seen: &Observed) -> Result<(), String> {
        self.note_reply(operation, &seen.reply, &seen.notifications)?;
        if let (Operation::Acquire(ask), Reply::Acquired(Acquired::Refused)) =
            (operation, &seen.reply)
        {
            self.note_reset_token(ask, seen)?;
        }
        self.note_view(seen)
    }

    /// Records the token that a request reset for a lock of its own before it was refused for another lock.
    fn note_reset_token(&mut self, ask: &Acquire, seen: &Observed) -> Result<(), String> {
        for claim in &ask.claims {
            let view = seen.keys.get(usize::from(claim.key));
            if let Some(entry) = view.and_then(|view| view.entry)
                && entry.holder == Holder::Owner(claim.owner)
                && entry.token > 0
                && self.known.get(&(claim.key, claim.owner)) != Some(&entry.token)
            {
                self.granted(claim.key, claim.owner, entry.token)?;
            }
        }
        Ok(())
    }

    /// Records the grants in a reply. The states of the keys follow.
    pub(super) fn note_reply(
        &mut self,
        operation: &Operation,
        reply: &Reply,
        notifications: &[Notification],
    ) -> Result<(), String> {
        for notification in notifications {
            if let Notification::Granted {
                key, owner, token, ..
            } = notification
            {
                self.granted(*key, *owner, *token)?;
            }
        }
        match (operation, reply) {
            (Operation::Acquire(ask), Reply::Acquired(Acquired::Granted { tokens, .. })) => {
                if tokens.len() != ask.claims.len() {
                    return Err(format!("{} tokens", tokens.len()));
                }
                for (claim, token) in ask.claims.iter().zip(tokens) {
                    self.granted(claim.key, claim.owner, *token)?;
                }
            }
            (Operation::Acquire(ask), Reply::Acquired(Acquired::Held { fences, .. })) => {
                for (claim, fence) in ask.claims.iter().zip(fences) {
                    let floor = self.floor.entry(claim.key).or_default();
                    // After a loss of data no fence is known.
                    let reserved = *fence + (BLOCK - 1);
                    if *fence > 3 && reserved < *floor {
                        return Err(format!("fence {fence} after {floor}"));
                    }
                    if *fence > 3 {
                        *floor = (*floor).max(reserved);
                    }
                }
            }
            (Operation::Extend(ask), Reply::Extended(Extended::More { fence, tokens }))
                if *tokens > 0 =>
            {
                self.above_floor(ask.key, *fence, *tokens)?;
                self.known.insert((ask.key, ask.owner), *fence);
            }
            (Operation::Release(ask), Reply::Released(reply)) => {
                if let (Released::Done(HandOff::Granted(token)), Some(next)) = (reply, ask.next) {
                    self.granted(ask.key, next.owner, *token)?;
                }
                if ask.count == 0 && self.past(operation).holds {
                    self.released.insert((ask.key, ask.owner));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records the states of the keys.
    pub(super) fn note_view(&mut self, seen: &Observed) -> Result<(), String> {
        self.entries = seen.keys.iter().map(|view| view.entry).collect();
        self.agrees_with_view(seen)
    }

    fn granted(&mut self, key: Key, owner: Owner, token: Token) -> Result<(), String> {
        let grants = self.grants.entry(key).or_default();
        let is_last = grants.last().is_some_and(|(last, _)| *last == owner);
        if is_last && self.known.get(&(key, owner)) == Some(&token) {
            return Ok(());
        }
        grants.push((owner, token));
        self.above_floor(key, token, BLOCK)?;
        self.known.insert((key, owner), token);
        Ok(())
    }

    /// Checks that all tokens of a block are larger than all earlier ones.
    fn above_floor(&mut self, key: Key, fence: Token, tokens: Token) -> Result<(), String> {
        let last = fence + (BLOCK - 1);
        let floor = self.floor.entry(key).or_default();
        if last < *floor + tokens {
            return Err(format!(
                "{tokens} tokens of key {key} up to {last} after {floor}"
            ));
        }
        *floor = last;
        Ok(())
    }

    /// Checks that the store shows the token of each lock's holder.
    fn agrees_with_view(&self, seen: &Observed) -> Result<(), String> {
        for (key, view) in (0..).zip(&seen.keys) {
            if let Some(entry) = view.entry
                && let Holder::Owner(owner) = entry.holder
                && entry.token > 0
                && self.known.get(&(key, owner)) != Some(&entry.token)
            {
                return Err(format!("key {key} shows token {}", entry.token));
            }
        }
        Ok(())
    }

    /// Checks that both sides made the same grants in the same order.
    pub(super) fn same_order(&self, other: &Self) -> Result<(), String> {
        let owners = |side: &Self| -> Vec<Vec<Owner>> {
            let owners = |grants: &Vec<(Owner, Token)>| grants.iter().map(|(o, _)| *o).collect();
            side.grants.values().map(owners).collect()
        };
        if owners(self) == owners(other) {
            Ok(())
        } else {
            Err(format!("grants {:?} and {:?}", self.grants, other.grants))
        }
    }
}
