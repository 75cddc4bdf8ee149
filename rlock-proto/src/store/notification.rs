//! The notifications of a store to its clients.

use std::{sync::Arc, time::Duration};

use crate::{key::Key, owner::OwnerId};

/// A notification of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// A waiter was granted its lock, for this long.
    Granted {
        /// The key of the lock.
        key: Key,
        /// The owner that waited.
        owner: OwnerId,
        /// The fence of the grant.
        fence: u64,
        /// How long the lock is granted for.
        ttl: Duration,
        /// Whether others wait for it.
        wanted: bool,
    },
    /// Another client waits for the lock of this owner.
    Wanted {
        /// The key of the lock.
        key: Key,
        /// The owner that has the lock.
        owner: OwnerId,
    },
    /// A waiter has to acquire again after this long.
    Retry {
        /// The key of the lock.
        key: Key,
        /// The owner that waits.
        owner: OwnerId,
        /// After how long it asks.
        after: Duration,
    },
    /// Another holder of a lock has a different number of permits than an owner that has just asked for it.
    PermitsDiffer {
        /// The key of the lock.
        key: Key,
        /// The number of the owner that asked.
        mine: u32,
        /// The number of the other holder.
        theirs: u32,
    },
    /// A client sent a message to this one.
    Message(Vec<u8>),
    /// Another connection changed this lock.
    Changed(Key),
    /// Any lock may have changed: everything was flushed, or notifications were missed.
    AllChanged,
    /// Any of these locks may have changed.
    SomeChanged(KeyFilter),
    /// Notifications are missed from now on.
    Disconnected,
}

/// A predicate that selects keys.
#[derive(Clone)]
pub struct KeyFilter(Arc<dyn Fn(&Key) -> bool + Send + Sync>);

impl KeyFilter {
    /// Selects the keys for which this returns true.
    pub fn new(are_meant: impl Fn(&Key) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(are_meant))
    }

    /// Selects all keys.
    #[must_use]
    pub fn all() -> Self {
        Self::new(|_| true)
    }

    /// Returns whether the key is selected.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        (self.0)(key)
    }
}

impl std::fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyFilter")
    }
}

impl PartialEq for KeyFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for KeyFilter {}

/// Handles notifications. Must not block.
pub type Listener = Arc<dyn Fn(Notification) + Send + Sync>;
