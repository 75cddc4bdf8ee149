//! Reports one acquire to metrics and spans.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rlock_proto::{
    few::Few,
    lease::Time,
    machine::{By, Entered},
};
use tracing::{Span, field::Empty};

use super::LockRequest;
use crate::{
    engine::{core::Core, entry::EntryGuard},
    error::LockError,
    metrics,
    observe::{
        Outcome,
        spans::{self, span},
    },
};

/// Counts as cancelled when it is dropped without a result.
pub(crate) struct ObservedAcquire<'a> {
    core: &'a Core,
    request: &'a LockRequest,
    pub(super) started: Time,
    waits: AtomicBool,
    metrics: metrics::Acquire,
    span: Option<Box<Span>>,
    has_ended: bool,
}

impl<'a> ObservedAcquire<'a> {
    pub(crate) fn begin(core: &'a Core, request: &'a LockRequest) -> Self {
        let started = core.clock.now();
        let span = spans::may_be_wanted()
            .then(|| acquire_span(core, request))
            .flatten();
        Self {
            core,
            request,
            started,
            waits: AtomicBool::new(false),
            metrics: metrics::Acquire::begin(request.site(), started),
            span,
            has_ended: false,
        }
    }

    /// Notes that the call waits for a taken lock.
    pub(crate) fn waits(&self) {
        if !self.waits.swap(true, Ordering::Relaxed) {
            self.core.shell.call_out(|| self.metrics.waits());
        }
    }

    /// Notes that a hold has begun. Returns its span, if a subscriber wants it.
    pub(crate) fn holds(&self, entered: &Entered, by: By) -> Option<Arc<Span>> {
        let site = self.request.site();
        let waited = self.waits.load(Ordering::Relaxed);
        let since = || self.core.clock.now();
        (self.core.shell).call_out(|| self.metrics.holds(since, waited, || by));
        let span = || {
            let key = &entered.entry.key;
            let site = site.in_mode(self.request.mode_of(key));
            spans::hold(waited, site, key, entered.token)
        };
        spans::may_be_wanted().then(span).flatten()
    }

    pub(crate) fn ends(mut self, result: &Result<Few<EntryGuard>, LockError>) {
        let outcome = match result {
            Ok(_) => Outcome::Granted,
            Err(LockError::Taken { .. }) if self.request.wait.is_none() => Outcome::Busy,
            Err(LockError::Taken { .. }) => Outcome::Timeout,
            Err(_) => Outcome::Error,
        };
        self.count(outcome);
        if let Some(span) = self.span.take() {
            self.close(&span, outcome, result);
        }
    }

    #[cold]
    fn close(&self, span: &Span, outcome: Outcome, result: &Result<Few<EntryGuard>, LockError>) {
        self.end(outcome)(span);
        match result {
            Ok(guards) => {
                span.record("lock.token", guards[0].token().as_u64());
            }
            Err(error) => {
                if let Some(holder) = error.holder() {
                    span.record("lock.holder", holder.to_string());
                }
                // An attempt that does not wait may well find the lock taken.
                if outcome != Outcome::Busy {
                    span.record("lock.error", format!("{error:#}"));
                }
            }
        }
    }

    fn count(&mut self, outcome: Outcome) {
        self.has_ended = true;
        let (core, waited) = (self.core, *self.waits.get_mut());
        let ends = || self.metrics.ends(outcome, waited, || core.clock.now());
        core.shell.call_out(ends);
    }

    /// Returns a function that records the end of the call in its span.
    fn end(&self, outcome: Outcome) -> impl FnOnce(&Span) + use<> {
        let contended = self.waits.load(Ordering::Relaxed) || outcome == Outcome::Busy;
        let took = self.core.clock.now().since(self.started);
        move |span| {
            span.record("lock.outcome", outcome.as_str());
            span.record("lock.contended", contended);
            span.record("lock.wait_ms", took.as_secs_f64() * 1e3);
        }
    }
}

impl Drop for ObservedAcquire<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.count(Outcome::Cancelled);
        if let Some(span) = self.span.take() {
            let end = self.end(Outcome::Cancelled);
            self.core.shell.later(move || end(&span));
        }
    }
}

/// Returns the span of an acquire, if a subscriber wants it.
#[cold]
fn acquire_span(core: &Core, request: &LockRequest) -> Option<Box<Span>> {
    let span = span!(
        "lock.acquire",
        lock.label = request.site().label_or("unnamed"),
        lock.mode = request.site().mode.as_str(),
        lock.key = spans::keys(request.keys()),
        lock.outcome = Empty,
        lock.contended = Empty,
        lock.wait_ms = Empty,
        lock.token = Empty,
        lock.holder = Empty,
        lock.error = Empty,
        db.system.name = core.store.system(),
        server.address = core.store.system().map(|_| core.store.describe()),
        otel.kind = core.store.system().map(|_| "client"),
    );
    span.map(Box::new)
}
