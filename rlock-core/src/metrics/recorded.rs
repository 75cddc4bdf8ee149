//! Counters, gauges and histograms of the recorder. They catch a panic of the recorder: in the middle of a change, the
//! panic would leave the lock taken.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the recorder. Returns `None` if it panics.
pub(super) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// A handle of the recorder; none if the recorder panicked when it made the handle.
#[derive(Debug, Clone)]
pub(super) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(super) fn new(register: impl FnOnce() -> T) -> Self {
        Self(guarded(register))
    }

    pub(super) fn update(&self, update: impl FnOnce(&T)) {
        if let Some(handle) = &self.0 {
            guarded(|| update(handle));
        }
    }
}
