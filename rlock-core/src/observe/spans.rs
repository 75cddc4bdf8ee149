//! Opens and closes the spans `lock.acquire` and `lock.hold`.

use std::sync::Arc;

use rlock_proto::{key::Key, machine::HoldEnd, options::Site};
use tracing::{
    Level, Span,
    field::{Empty, display},
};

/// Returns whether a subscriber may want the spans. Without one, this costs two loads.
pub(crate) fn may_be_wanted() -> bool {
    tracing::level_enabled!(Level::DEBUG)
}

/// Makes a span. Evaluates the fields if a subscriber wants the span.
macro_rules! span {
    ($name:literal, $($fields:tt)+) => {{
        let span = tracing::debug_span!(target: "rlock_core::spans", $name, $($fields)+);
        (!span.is_disabled()).then_some(span)
    }};
}
pub(crate) use span;

/// Returns the keys, unless they are hidden.
pub(crate) fn keys<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Option<String> {
    let shown = |key: &Key| (!key.is_hidden()).then(|| key.to_string());
    let keys: Option<Vec<String>> = keys.into_iter().map(shown).collect();
    keys.map(|keys| keys.join(", "))
}

/// Returns the span of a hold, if a subscriber wants it.
pub(crate) fn hold(contended: bool, site: Site, key: &Key, token: u64) -> Option<Arc<Span>> {
    let span = span!(
        "lock.hold",
        lock.label = site.label_or("unnamed"),
        lock.key = keys(std::slice::from_ref(key)),
        lock.mode = site.mode.as_str(),
        lock.contended = contended,
        lock.token = token,
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
