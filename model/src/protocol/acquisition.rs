//! The acquisition of a client.

use super::{Time, client::Pending, ownership::How};
use crate::words::{Fence, Owner};

/// The requests for one owner, as in `engine/machine/requests.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquisition {
    pub(super) owner: Owner,
    pub(super) step: Step,
    pub(super) in_doubt: bool,
    /// Whether it was in doubt before the last request.
    pub(super) was_in_doubt: bool,
    pub(super) begun: Option<Time>,
    pub(super) past_fence: Fence,
    pub(super) advised: Option<Time>,
    /// Whether other clients wait for the granted lock.
    pub(super) wanted: bool,
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Absent,
    Waiting {
        since: Time,
        ask_at: Time,
        queued: bool,
    },
    Granted(Grant),
}

/// A lock that was granted to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(super) fence: Fence,
    pub(super) since: Time,
    pub(super) ttl: Time,
    pub(super) how: How,
}

impl Grant {
    /// Like `Grant::is_fresh`.
    pub(super) fn is_fresh(&self, lease: Time, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

impl Acquisition {
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            owner,
            step: Step::Absent,
            in_doubt: false,
            was_in_doubt: false,
            begun: None,
            past_fence: 0,
            advised: None,
            wanted: false,
            pending: None,
        }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.advised = None;
        self.begun.get_or_insert(now);
        self.was_in_doubt = std::mem::replace(&mut self.in_doubt, true);
    }

    pub(super) fn grant(&mut self, grant: Grant) {
        self.step = Step::Granted(grant);
        self.in_doubt = false;
    }

    pub(super) fn end_grants(&mut self, fence: Fence) {
        self.past_fence = self.past_fence.max(fence);
        if let Step::Granted(grant) = self.step
            && grant.fence <= fence
        {
            self.step = Step::Waiting {
                since: grant.since,
                ask_at: grant.since,
                queued: true,
            };
            self.wanted = false;
        }
    }

    pub(super) fn queued(&mut self, since: Time, ttl: Time, now: Time) {
        let ask_at = match self.step {
            Step::Granted(grant) if grant.is_fresh(grant.ttl, now) => return,
            Step::Granted(_) => now,
            Step::Absent | Step::Waiting { .. } => now + ttl.max(1),
        };
        self.wanted = false;
        let advised = self.advised.take().unwrap_or(ask_at);
        self.step = Step::Waiting {
            since,
            ask_at: ask_at.min(advised),
            queued: true,
        };
    }

    /// Applies the notification of a grant.
    pub(super) fn notified(&mut self, fence: Fence, ttl: Time, since: Option<Time>) {
        let since = since.or(match self.step {
            Step::Waiting { since, .. } => Some(since),
            Step::Absent | Step::Granted(_) => self.begun,
        });
        if let Some(since) = since {
            self.step = Step::Granted(Grant {
                fence,
                since,
                ttl,
                how: How::Notified,
            });
        }
    }

    pub(super) fn retry_after(&mut self, after: Time, now: Time) {
        let at = now + after;
        self.advised = Some(self.advised.map_or(at, |advised| advised.min(at)));
        if let Step::Waiting { ask_at, .. } = &mut self.step {
            *ask_at = (*ask_at).min(at);
        }
    }

    pub(super) fn concerns_server(&self) -> bool {
        self.in_doubt
            || match self.step {
                Step::Absent => false,
                Step::Waiting { queued, .. } => queued,
                Step::Granted(_) => true,
            }
    }
}
