//! What the store may have done to an ownership without the client's knowing it, and what has to follow from that.
//!
//! | what happened | what may be true at the store | what must follow |
//! | --- | --- | --- |
//! | an acquire has no answer, or not yet | it grants the lock or queues the owner, now or later | a release, even if nothing else is known of the owner; until then, each request goes behind the acquire |
//! | … of several locks, or at several servers | the same, and it takes the grant back, now or later | no hold: the next call asks with another owner |
//! | a count has no answer, or found no lock | the store shows this count, or the one before | the count again, behind it |
//! | a release has no answer | the lock is free | the release again, behind it, and it may find no lock |
//! | another client changed the lock, messages were missed, or an acquire failed | the lock is gone | a request that was sent since and finds the lock, before a hold follows; a renewal at once, if messages are heard |
//! | a grant has another fence than the tokens | the lock was gone in between, for holds that may remain | no hold: the next call asks with another owner |
//!
//! An answer of the store settles all requests before, because a request that goes behind others is executed after them.

use super::input::Failure;
use crate::lease::Time;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    /// How many acquires may still get an answer.
    under_way: u8,
    unanswered: Unanswered,
    /// Whether an acquire may take its grant back.
    takes_back: bool,
    /// Whether the lock was gone between two grants.
    was_gone: bool,
    /// When the latest report came in, until a later request finds the lock.
    reported_at: Option<Time>,
    /// Whether a renewal is due at once then.
    is_checked: bool,
}

/// Which requests get no answer, although the store may have executed them, or may yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Unanswered {
    acquire: bool,
    count: bool,
    release: bool,
}

/// A request that can leave a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    /// `takes_back`: whether it may take its grant back, without an answer that tells.
    Acquire {
        takes_back: bool,
    },
    /// A count or a downgrade.
    Count,
    Release,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// The owner had the lock when the request, which was sent at this time, was executed.
    Has(Time),
    /// The owner did not have it.
    HasNot,
    /// The store does not execute the request.
    NotExecuted,
    /// The store would refuse the same request again.
    Refused,
    /// The store may have executed the request, or may yet.
    Missing,
}

/// What may change the lock without a request of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Report {
    /// Another client has changed the lock.
    Changed,
    /// Another client may have changed the lock, because messages were missed, and are until they are heard again.
    Missed { is_heard: bool },
    /// The store handed the lock off to the owner, after all that was reported before.
    HandedOff,
    /// The store granted the lock to its former owner.
    GrantedAgain,
}

/// The unanswered request behind which the server must execute a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Behind {
    Nothing,
    Request,
    /// A release, which may have ended the ownership.
    Release,
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        if failure.maybe_executed {
            Self::Missing
        } else {
            Self::NotExecuted
        }
    }
}

impl Doubt {
    /// Notes that a request is about to be sent. Only acquires follow each other before they are answered.
    pub(super) fn sent(&mut self, asked: Asked) -> Behind {
        let behind = match asked {
            Asked::Release if self.unanswered.release => Behind::Release,
            Asked::Count if self.hides_count() => Behind::Request,
            _ if self.may_be_known() => Behind::Request,
            _ => Behind::Nothing,
        };
        if let Asked::Acquire { takes_back } = asked {
            self.under_way += 1;
            self.takes_back |= takes_back;
        }
        behind
    }

    /// Notes the answer to a request.
    pub(super) fn answered(&mut self, asked: Asked, answer: Answer, now: Time) {
        let is_unanswered = match asked {
            Asked::Acquire { .. } => &mut self.unanswered.acquire,
            Asked::Count => &mut self.unanswered.count,
            Asked::Release => &mut self.unanswered.release,
        };
        *is_unanswered = match answer {
            Answer::Has(_) | Answer::HasNot | Answer::Refused => false,
            Answer::NotExecuted => *is_unanswered,
            Answer::Missing => true,
        };
        match (asked, answer) {
            (Asked::Acquire { takes_back }, _) => {
                self.under_way -= 1;
                if self.under_way == 0 {
                    self.takes_back = match answer {
                        Answer::Missing => takes_back,
                        _ => self.takes_back && self.unanswered.acquire,
                    };
                }
                if matches!(answer, Answer::NotExecuted | Answer::Missing) {
                    // The store may have taken back what the owner had, as a quorum does.
                    self.reported(Report::Changed, now);
                }
            }
            (Asked::Count, Answer::HasNot) => {
                self.unanswered.count = true;
                self.reported(Report::Changed, now);
            }
            (Asked::Release, Answer::HasNot) => self.unanswered.acquire = false,
            (Asked::Count | Asked::Release, _) => {}
        }
        if let Answer::Has(sent_at) = answer {
            self.found(sent_at);
        }
    }

    /// Notes that a request which was sent at this time, as a renewal, found the lock.
    pub(super) fn found(&mut self, sent_at: Time) {
        self.reported_at = self.reported_at.filter(|at| *at >= sent_at);
        self.is_checked &= self.must_be_confirmed();
    }

    /// Notes that the lock may have changed without a request of this client.
    pub(super) fn reported(&mut self, report: Report, now: Time) {
        match report {
            Report::HandedOff => (self.reported_at, self.is_checked) = (None, false),
            Report::GrantedAgain => self.was_gone = true,
            Report::Changed | Report::Missed { .. } => {
                self.reported_at = Some(now);
                self.is_checked |= report != Report::Missed { is_heard: false };
            }
        }
    }

    /// Returns whether another hold may follow.
    pub(super) fn admits_hold(&self) -> bool {
        self.admits_owner() && !self.must_be_confirmed()
    }

    /// Returns whether another hold may follow once a request has confirmed the ownership. Otherwise, the next call asks with
    /// another owner.
    pub(super) fn admits_owner(&self) -> bool {
        !self.takes_back && !self.was_gone
    }

    /// Returns whether a request must find the lock before another hold follows.
    pub(super) fn must_be_confirmed(&self) -> bool {
        self.reported_at.is_some()
    }

    /// Returns whether a renewal must find that out at once.
    pub(super) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Returns whether the store may have granted the lock to the owner, or queued the owner, by an acquire without an answer.
    pub(super) fn may_be_known(&self) -> bool {
        self.is_awaited() || self.unanswered.acquire
    }

    /// Returns whether an acquire may still get an answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.under_way > 0
    }

    /// Returns whether the store may show another count than it last confirmed.
    pub(super) fn hides_count(&self) -> bool {
        self.unanswered.count
    }
}
