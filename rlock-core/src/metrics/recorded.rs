//! Counters, gauges and histograms of the recorder. Its panics end here: one in the middle of a change of a lock would
//! leave that lock taken.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// Runs code of the recorder. Returns `None` if it panics.
pub(super) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

#[derive(Debug)]
pub(super) struct Counter(pub(super) metrics::Counter);

impl Counter {
    pub(super) fn increment(&self, by: u64) {
        guarded(|| self.0.increment(by));
    }
}

#[derive(Debug)]
pub(super) struct Gauge(pub(super) metrics::Gauge);

impl Gauge {
    pub(super) fn increment(&self, by: f64) {
        guarded(|| self.0.increment(by));
    }

    pub(super) fn decrement(&self, by: f64) {
        guarded(|| self.0.decrement(by));
    }

    pub(super) fn set(&self, value: f64) {
        guarded(|| self.0.set(value));
    }
}

#[derive(Debug, Clone)]
pub(super) struct Histogram(pub(super) metrics::Histogram);

impl Histogram {
    pub(super) fn record(&self, value: Duration) {
        guarded(|| self.0.record(value));
    }
}
