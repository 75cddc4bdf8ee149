//! For how long servers are waited for that answer as a rule, when the others have decided already.

use std::time::Duration;

use tokio::time::Instant;

pub(super) const SHORTEST: Duration = Duration::from_millis(20);
pub(super) const LONGEST: Duration = Duration::from_millis(250);

pub(super) struct Linger {
    started: Instant,
    /// When the last answer is of use.
    pub(super) until: Instant,
    /// When those that did not decide are too late.
    over: Option<Instant>,
}

impl Linger {
    pub(super) fn new(until: Instant) -> Self {
        Self {
            started: Instant::now(),
            until,
            over: None,
        }
    }

    /// When the rest is too late, now that there is a decision: where everything is slow, so are they.
    pub(super) fn over(&mut self) -> Instant {
        let (started, until) = (self.started, self.until);
        *self.over.get_or_insert_with(|| {
            let (took, now) = (started.elapsed(), Instant::now());
            until.min(now + (took * 10).clamp(SHORTEST, LONGEST))
        })
    }
}
