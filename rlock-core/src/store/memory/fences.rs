//! The next fence of an embedded store, which outlives the store because it may be ahead of the clock. They may be
//! ahead of the clock, so they outlive their store.

use std::sync::atomic::{AtomicU64, Ordering};

use rlock_proto::{embedded::Fences, store::fence_at};

use crate::clock::wall_clock_micros;

/// The last fence of any lock in this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The fences of this process.
#[derive(Clone, Copy, Default)]
pub(super) struct OfProcess;

impl Fences for OfProcess {
    fn next(&mut self) -> u64 {
        LAST.fetch_max(fence_at(wall_clock_micros()), Ordering::AcqRel);
        LAST.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn last(&self) -> u64 {
        LAST.load(Ordering::Acquire)
    }
}
