//! Who waits for which lock, in the order in which they came.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use crate::{key::Key, lease::Time, owner::OwnerId};

/// One owner for each client, and since when; a lock that nobody waits for has no line.
#[derive(Default)]
pub(super) struct Lines(pub(super) HashMap<Key, VecDeque<(OwnerId, Time)>>);

impl Lines {
    /// At the end, unless it stands there.
    pub(super) fn stand(&mut self, key: &Key, owner: OwnerId, now: Time) {
        let line = self.0.entry(key.clone()).or_default();
        if line.iter().all(|(in_line, _)| *in_line != owner) {
            line.push_back((owner, now));
        }
    }

    pub(super) fn leave(&mut self, key: &Key, owner: OwnerId) {
        if let Some(line) = self.0.get_mut(key) {
            line.retain(|(in_line, _)| *in_line != owner);
            if line.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub(super) fn leave_all(&mut self, client: Uuid) {
        self.0.retain(|_, line| {
            line.retain(|(owner, _)| owner.client() != client);
            !line.is_empty()
        });
    }

    pub(super) fn has(&self, key: &Key, owner: OwnerId) -> bool {
        let line = self.0.get(key);
        line.is_some_and(|line| line.iter().any(|(in_line, _)| *in_line == owner))
    }

    pub(super) fn first(&self, key: &Key) -> Option<OwnerId> {
        let (owner, _) = self.0.get(key)?.front()?;
        Some(*owner)
    }

    /// The last, if somebody stands before it.
    pub(super) fn last_behind(&self, key: &Key) -> Option<OwnerId> {
        let line = self.0.get(key).filter(|line| line.len() > 1)?;
        let (owner, _) = line.back()?;
        Some(*owner)
    }

    pub(super) fn take_first(&mut self, key: &Key) -> Option<(OwnerId, Time)> {
        let line = self.0.get_mut(key)?;
        let first = line.pop_front();
        if line.is_empty() {
            self.0.remove(key);
        }
        first
    }
}
