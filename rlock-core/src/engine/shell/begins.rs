//! Which holds a call begins or enters, counted by the site of its lock.

use std::sync::Arc;

use rlock_proto::{few::Few, options::Site};

use crate::{engine::hold_record::HoldRecord, metrics};

/// The holds that a call begins or enters.
pub(in crate::engine) struct Begins {
    pub(super) counters: metrics::LockCounters,
    /// The hold of each entry, once the call has them.
    pub(in crate::engine) holds: Few<Arc<HoldRecord>>,
}

impl Begins {
    pub(in crate::engine) fn new(site: Site) -> Self {
        Self {
            counters: metrics::lock(site),
            holds: Few::new(),
        }
    }
}
