//! What a client does where a lock does not say otherwise.

use std::time::Duration;

/// How long an acquire may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One request, and no waiting.
    Never,
    For(Duration),
    Forever,
}

/// Whether nested entries are counted at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reentry {
    /// Every nested entry shows in the store's count, at the price of a round trip each.
    #[default]
    Counted,
    /// Nested entries are counted in this process alone and cost no round trip; the store shows 1.
    Local,
}

/// What a client does where a lock does not say otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) watchdog: bool,
    pub(crate) reentry: Reentry,
    /// How many callers of one process are served in a row while other processes wait.
    pub(crate) local_handovers: usize,
    /// How long an ownership is kept after its last hold.
    pub(crate) retain: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) replicas: Option<Replicas>,
}

/// How many replicas are to have a lock before it counts as taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) least: usize,
    pub(crate) within: Duration,
}
