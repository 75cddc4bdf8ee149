//! What a client asked the server for, and what is known of it.

use super::{Time, client::Pending, ownership::How};
use crate::words::{Owner, Token};

/// What the server is asked for; as `asking.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(super) owner: Owner,
    pub(super) step: Step,
    pub(super) in_doubt: bool,
    /// Whether it was in doubt before the last request.
    pub(super) was_in_doubt: bool,
    pub(super) begun: Option<Time>,
    pub(super) past: Token,
    pub(super) advised: Option<Time>,
    /// Whether other clients wait for what was granted.
    pub(super) wanted: bool,
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Unasked,
    Waiting {
        since: Time,
        look: Time,
        in_line: bool,
    },
    Granted(Given),
}

/// A lock that was given to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Given {
    pub(super) token: Token,
    pub(super) since: Time,
    pub(super) ttl: Time,
    pub(super) how: How,
}

impl Given {
    /// As `Grant::is_fresh`.
    pub(super) fn is_fresh(&self, lease: Time, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

impl Asked {
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            owner,
            step: Step::Unasked,
            in_doubt: false,
            was_in_doubt: false,
            begun: None,
            past: 0,
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

    pub(super) fn given(&mut self, given: Given) {
        self.step = Step::Granted(given);
        self.in_doubt = false;
    }

    pub(super) fn is_past(&mut self, token: Token) {
        self.past = self.past.max(token);
        if let Step::Granted(given) = self.step
            && given.token <= token
        {
            self.step = Step::Waiting {
                since: given.since,
                look: given.since,
                in_line: true,
            };
            self.wanted = false;
        }
    }

    pub(super) fn in_line(&mut self, since: Time, ttl: Time, now: Time) {
        let look = match self.step {
            Step::Granted(given) if given.is_fresh(given.ttl, now) => return,
            Step::Granted(_) => now,
            Step::Unasked | Step::Waiting { .. } => now + ttl.max(1),
        };
        self.wanted = false;
        let advised = self.advised.take().unwrap_or(look);
        self.step = Step::Waiting {
            since,
            look: look.min(advised),
            in_line: true,
        };
    }

    /// A message tells of a grant.
    pub(super) fn told(&mut self, token: Token, ttl: Time, since: Option<Time>) {
        let since = since.or(match self.step {
            Step::Waiting { since, .. } => Some(since),
            Step::Unasked | Step::Granted(_) => self.begun,
        });
        if let Some(since) = since {
            self.step = Step::Granted(Given {
                token,
                since,
                ttl,
                how: How::Told,
            });
        }
    }

    pub(super) fn look_after(&mut self, after: Time, now: Time) {
        let at = now + after;
        self.advised = Some(self.advised.map_or(at, |advised| advised.min(at)));
        if let Step::Waiting { look, .. } = &mut self.step {
            *look = (*look).min(at);
        }
    }

    pub(super) fn concerns_server(&self) -> bool {
        self.in_doubt
            || match self.step {
                Step::Unasked => false,
                Step::Waiting { in_line, .. } => in_line,
                Step::Granted(_) => true,
            }
    }
}
