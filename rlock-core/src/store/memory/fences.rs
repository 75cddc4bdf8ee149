//! The fences of embedded stores. They may be ahead of the clock, so they outlive their store.

use std::sync::atomic::{AtomicU64, Ordering};

use rlock_proto::embedded::Fences;

use crate::clock::wall_clock_micros;

/// The last fence of any lock in this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The fences of this process.
#[derive(Clone, Copy, Default)]
pub(super) struct OfProcess;

impl Fences for OfProcess {
    fn next(&mut self) -> u64 {
        LAST.fetch_max(wall_clock_micros() / 64, Ordering::AcqRel);
        LAST.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn last(&self) -> u64 {
        LAST.load(Ordering::Acquire)
    }
}
