//! One call that acquires locks, as metrics and spans show it.

use crate::{
    engine::{
        acquire::{AcquireError, Request},
        core::Core,
        ownership::{Ownership, Terms},
    },
    lease::Time,
    metrics,
    observe::Outcome,
};

/// Counts as cancelled when it is dropped without a result.
pub(crate) struct Call<'a> {
    core: &'a Core,
    request: &'a Request,
    metrics: metrics::Acquire,
    has_ended: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn begin(core: &'a Core, request: &'a Request, started: Time) -> Self {
        Self {
            core,
            request,
            metrics: metrics::Acquire::begin(request.options.site, started),
            has_ended: false,
        }
    }

    /// Notes that the call waits for a taken lock.
    pub(crate) fn waits(&self) {
        self.metrics.waits();
    }

    /// Notes that a hold of this ownership has begun.
    pub(crate) fn holds(&self, terms: Terms, ownership: &Ownership) {
        self.metrics.holds(terms.since, || ownership.way());
    }

    pub(crate) fn ends<T>(mut self, outcome: &Result<T, AcquireError>) {
        self.record(match outcome {
            Ok(_) => Outcome::Granted,
            Err(AcquireError::Taken { .. }) if self.request.options.wait.is_none() => Outcome::Busy,
            Err(AcquireError::Taken { .. }) => Outcome::Timeout,
            Err(AcquireError::Failed(_)) => Outcome::Error,
        });
    }

    fn record(&mut self, outcome: Outcome) {
        self.has_ended = true;
        let core = self.core;
        self.metrics.ends(outcome, || core.clock.now());
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.record(Outcome::Cancelled);
        }
    }
}
