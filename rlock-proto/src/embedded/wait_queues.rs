//! The queue of each lock of the embedded store: which owners wait, in the order in which they came.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use uuid::Uuid;

use crate::{key::Key, lease::Time, owner::OwnerId};

/// One owner for each client, and since when it waits. A lock without waiters has no queue.
#[derive(Clone, Default)]
pub struct WaitQueues(pub(super) HashMap<Key, VecDeque<(OwnerId, Time)>, RandomState>);

impl WaitQueues {
    /// Returns the owners that wait for a lock, the first one first.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = OwnerId> {
        self.since(key).map(|(owner, _)| owner)
    }

    /// Returns the owners that wait for a lock, and since when each of them does.
    pub fn since(&self, key: &Key) -> impl Iterator<Item = (OwnerId, Time)> {
        self.0.get(key).into_iter().flatten().copied()
    }

    /// Removes the queue of a lock.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Returns the owner that waits first.
    #[must_use]
    pub fn first(&self, key: &Key) -> Option<OwnerId> {
        self.of(key).next()
    }

    /// Returns the first owner, and since when it waits.
    #[must_use]
    pub(crate) fn first_since(&self, key: &Key) -> Option<(OwnerId, Time)> {
        self.0.get(key)?.front().copied()
    }

    /// Returns whether an owner waits.
    #[must_use]
    pub(crate) fn has(&self, key: &Key, owner: OwnerId) -> bool {
        self.of(key).any(|waiter| waiter == owner)
    }

    /// Adds an owner at the end, unless it is in the queue.
    pub fn join(&mut self, key: &Key, owner: OwnerId, now: Time) {
        let queue = self.0.entry(key.clone()).or_default();
        if queue.iter().all(|(waiter, _)| *waiter != owner) {
            queue.push_back((owner, now));
        }
    }

    /// Removes an owner from a queue.
    pub fn leave(&mut self, key: &Key, owner: OwnerId) {
        if let Some(queue) = self.0.get_mut(key) {
            queue.retain(|(waiter, _)| *waiter != owner);
            if queue.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// Removes all owners of a client.
    pub fn leave_all(&mut self, client: Uuid) {
        self.0.retain(|_, queue| {
            queue.retain(|(waiter, _)| waiter.client() != client);
            !queue.is_empty()
        });
    }
}
