//! The `max_hold` of one entry.

use crate::{
    lease::Time,
    sync::atomic::{AtomicBool, Ordering},
};

/// When an entry ends, and whether that was noticed. Handles keep it after the entry has left.
pub(crate) struct MaxHold {
    /// The end of the `max_hold`.
    pub(crate) at: Time,
    noticed: AtomicBool,
}

impl MaxHold {
    pub(super) fn new(at: Time) -> Self {
        Self {
            at,
            noticed: AtomicBool::new(false),
        }
    }

    /// Marks the limit as noticed. Returns `true` at the first call.
    pub(crate) fn notice(&self) -> bool {
        !self.noticed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_noticed(&self) -> bool {
        self.noticed.load(Ordering::Acquire)
    }
}
