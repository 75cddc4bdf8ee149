//! Whether a connection was idle when it was lost, which decides if a request is repeated.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rlock_proto::wait::Spread;

/// After this time without requests, a connection counts as idle, so that its loss is logged at DEBUG.
const IDLE: Duration = Duration::from_secs(15);

/// The use of one connection. The link keeps it when the connection has ended.
pub(super) struct Usage {
    opened: Instant,
    has_changed: AtomicBool,
    /// When the last request was sent, in milliseconds since the connection was opened. Zero for none.
    last: AtomicU64,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            has_changed: AtomicBool::new(false),
            last: AtomicU64::new(0),
        }
    }

    /// Records that a request is sent.
    pub(super) fn begin(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.last.store(since.max(1), Ordering::Relaxed);
    }

    /// Records that the server has executed a change, which a replica refuses.
    pub(super) fn succeed(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server has executed a change. A connection that has lasted for longer than the longest pause also
    /// counts, because opening connections at that rate is harmless.
    pub(super) fn has_served(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed) || self.opened.elapsed() > Spread::LONGEST
    }

    /// Returns whether the connection carried no request, or none for a while.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last == 0 || now > self.opened + Duration::from_millis(last) + IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_before_its_first_request_and_a_while_after_its_last() {
        let usage = Usage::new();
        let sent = usage.opened + IDLE;
        assert!(usage.is_idle(usage.opened));
        usage.begin(sent);
        assert!(!usage.is_idle(sent + IDLE / 2));
        assert!(usage.is_idle(sent + IDLE * 2));
    }

    #[test]
    fn a_new_connection_has_served_once_a_change_has_succeeded() {
        let usage = Usage {
            // The test may be suspended for longer than the longest pause.
            opened: Instant::now() + IDLE,
            ..Usage::new()
        };
        usage.begin(usage.opened);
        assert!(!usage.has_served());
        usage.succeed();
        assert!(usage.has_served());
    }
}
