//! What tests do to an embedded store: simulated outages and losses, and the check of its clock.

use std::{fmt, sync::Arc, sync::atomic::Ordering};

use rlock_proto::key::Key;

use super::{MemoryStore, SharedStore};
use crate::{clock::ClientClock, error::LockError, store::StoreError};

/// An outage of an embedded store, which lasts until this is dropped.
/// [`simulate_outage`](crate::testing::simulate_outage) makes it.
#[must_use = "the outage ends when this is dropped"]
pub struct SimulatedOutage(Arc<SharedStore>);

impl Drop for SimulatedOutage {
    fn drop(&mut self) {
        let outages = &self.0.outages;
        self.0.change(|_| outages.fetch_sub(1, Ordering::Relaxed));
    }
}

impl fmt::Debug for SimulatedOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedOutage").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// Makes all requests fail until the outage is dropped.
    pub(crate) fn simulate_outage(&self) -> SimulatedOutage {
        let outages = &self.shared.outages;
        self.shared
            .change(|_| outages.fetch_add(1, Ordering::Relaxed));
        SimulatedOutage(Arc::clone(&self.shared))
    }

    /// Takes a lock from its holder and hands it off to the first waiter. Returns whether the lock was held.
    pub(crate) fn simulate_loss(&self, key: &Key) -> Result<bool, StoreError> {
        let now = self.clock.now();
        self.shared.execute(|state| state.revoke(key, now))
    }
}

impl SharedStore {
    /// Refuses a client whose clock differs from that of the first client, because leases would end too early or never.
    pub(crate) fn check_clock(&self, name: &str, clock: &ClientClock) -> Result<(), LockError> {
        let first = self.clock.get_or_init(|| clock.clone());
        if first.is_comparable_to(clock) {
            return Ok(());
        }
        let reason = "another client of this store has another clock, so they would disagree on when a lease ends; make \
                      all of them with the same clock, or choose another name";
        let url = format!("`memory:{name}`");
        Err(LockError::invalid_option("url", url, reason))
    }
}
