//! What a store tells its clients without being asked: granted, wanted, retry, changed.

use std::{sync::Arc, time::Duration};

use super::HashSlot;
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
    /// Any of these locks may have changed, for example because everything was flushed, or notifications were missed.
    SomeChanged(KeyFilter),
    /// Notifications are missed from now on.
    Disconnected,
}

/// Selects keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyFilter {
    /// Every key.
    All,
    /// This key.
    One(Key),
    /// The keys in these slots of a cluster, which are in ascending order.
    Slots(Vec<HashSlot>),
}

impl KeyFilter {
    /// Returns whether the key is selected.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == key,
            Self::Slots(slots) => slots.binary_search(&HashSlot::of(key)).is_ok(),
        }
    }
}

/// Handles notifications. Must not block.
pub type Listener = Arc<dyn Fn(Notification) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_its_key_or_the_keys_of_its_slots() {
        let [a, b] = ["a", "b"].map(|key| Key::parse(key).expect("valid"));
        let slots = |key: &Key| KeyFilter::Slots(vec![HashSlot::of(key)]);
        for filter in [KeyFilter::One(a.clone()), slots(&a)] {
            assert!(filter.matches(&a) && !filter.matches(&b), "{filter:?}");
        }
        assert!(KeyFilter::All.matches(&b));
    }
}
