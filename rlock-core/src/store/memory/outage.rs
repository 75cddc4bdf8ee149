//! Simulated outages of the embedded store.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::SharedStore;

/// The number of outages that have not ended. It changes under the mutex of the store.
#[derive(Default)]
pub(super) struct Outages(AtomicUsize);

impl Outages {
    pub(super) fn is_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// An outage of an embedded store, which lasts until this is dropped. Made by
/// [`LockClient::simulate_outage`](crate::LockClient::simulate_outage).
#[must_use = "the outage ends when this is dropped"]
pub struct SimulatedOutage(Arc<SharedStore>);

impl SimulatedOutage {
    pub(super) fn begin(store: &Arc<SharedStore>) -> Self {
        store.change(|_| store.outages.0.fetch_add(1, Ordering::Relaxed));
        Self(Arc::clone(store))
    }
}

impl Drop for SimulatedOutage {
    fn drop(&mut self) {
        let outages = &self.0.outages;
        self.0.change(|_| outages.0.fetch_sub(1, Ordering::Relaxed));
    }
}

impl fmt::Debug for SimulatedOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedOutage").finish_non_exhaustive()
    }
}
