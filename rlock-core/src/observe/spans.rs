//! The spans `lock.acquire` and `lock.hold`.
//!
//! The level of a span is fixed when it is made. An acquire gets a span at DEBUG when it begins. If no subscriber wants
//! that, an acquire that has to wait gets one at INFO when its wait begins. Both have the same name and the same fields.

use std::{sync::Arc, time::Duration};

use tracing::{
    Level, Span,
    field::{Empty, display},
};

use super::{HoldEnd, Outcome};
use crate::{
    engine::{
        acquire::Request,
        core::Core,
        ownership::{Ownership, Terms},
    },
    key::Key,
};

/// Returns whether a subscriber may want spans of this level. Only loads a number, so it costs nothing without one.
pub(super) fn may_be_wanted(is_important: bool) -> bool {
    if is_important {
        tracing::level_enabled!(Level::INFO)
    } else {
        tracing::level_enabled!(Level::DEBUG)
    }
}

/// Makes a span at INFO or DEBUG. Evaluates the fields if a subscriber wants the span.
macro_rules! span {
    ($is_important:expr, $name:literal, $($fields:tt)+) => {{
        let span = if $is_important {
            tracing::info_span!($name, $($fields)+)
        } else {
            tracing::debug_span!($name, $($fields)+)
        };
        (!span.is_disabled()).then_some(span)
    }};
}

/// Returns the span of an acquire, if a subscriber wants it.
pub(super) fn acquire(waits: bool, core: &Core, request: &Request) -> Option<Span> {
    span!(
        waits,
        "lock.acquire",
        lock.template = request.options.site.label(),
        lock.key = keys(&request.keys),
        lock.outcome = Empty,
        lock.contended = Empty,
        lock.wait_ms = Empty,
        lock.token = Empty,
        lock.holder = Empty,
        db.system.name = core.store.system(),
        server.address = core.store.system().map(|_| core.store.place()),
        otel.kind = core.store.system().map(|_| "client"),
    )
}

/// Returns the keys, unless they are hidden.
fn keys(keys: &[Key]) -> Option<String> {
    let shown = |key: &Key| (!key.is_hidden()).then(|| key.to_string());
    let keys: Option<Vec<String>> = keys.iter().map(shown).collect();
    keys.map(|keys| keys.join(", "))
}

/// The fields that the end of an acquire fills in.
#[derive(Debug)]
pub(super) struct AcquireEnd {
    pub(super) outcome: Outcome,
    pub(super) contended: bool,
    pub(super) took: Duration,
    /// The token of the first lock.
    pub(super) token: Option<u64>,
    pub(super) holder: Option<&'static str>,
}

impl AcquireEnd {
    pub(super) fn close(&self, span: &Span) {
        span.record("lock.outcome", self.outcome.as_str());
        span.record("lock.contended", self.contended);
        span.record("lock.wait_ms", self.took.as_secs_f64() * 1e3);
        if let Some(token) = self.token {
            span.record("lock.token", token);
        }
        if let Some(holder) = self.holder {
            span.record("lock.holder", holder);
        }
    }
}

/// Returns the span of a hold, if a subscriber wants it.
pub(super) fn hold(contended: bool, terms: Terms, ownership: &Ownership) -> Option<Arc<Span>> {
    let span = span!(
        contended,
        "lock.hold",
        lock.template = terms.site.label(),
        lock.key = keys(std::slice::from_ref(&ownership.key)),
        lock.contended = contended,
        lock.token = ownership.token(),
        lock.end = Empty,
        lock.renewals = Empty,
    );
    span.map(Arc::new)
}

/// A hold that has ended, and its span.
#[must_use = "a destructor must not close a span"]
pub(crate) struct EndedHold {
    pub(crate) span: Arc<Span>,
    pub(crate) end: HoldEnd,
    pub(crate) renewals: u32,
}

impl EndedHold {
    pub(crate) fn close(self) {
        self.span.record("lock.end", display(self.end.as_str()));
        self.span.record("lock.renewals", self.renewals);
    }
}
