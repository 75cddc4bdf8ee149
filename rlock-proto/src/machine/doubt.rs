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
    acquires: Acquires,
    /// Whether the store may show another count than it last confirmed.
    count: bool,
    /// Whether a release has no answer.
    release: bool,
    reported: Option<Reported>,
    /// Whether the lock was gone between two grants.
    was_gone: bool,
}

/// The acquires of the owner that have no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Acquires {
    /// How many may still get one.
    under_way: u8,
    /// Whether one gets none.
    is_unanswered: bool,
    /// Whether one may take its grant back.
    take_back: bool,
}

/// The latest report, until a later request finds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reported {
    at: Time,
    /// Whether a renewal is due at once.
    is_checked: bool,
}

/// A request, as far as it can leave a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    /// `takes_back`: whether it may take its grant back, and its answer does not tell.
    Acquire {
        takes_back: bool,
    },
    /// A count or a downgrade.
    Count,
    Release,
    Renewal,
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

/// The requests without an answer behind which the server must execute a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Behind {
    Nothing,
    /// An acquire, or a count.
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
    /// Notes that a request is about to be sent. A count or a release leaves no doubt while it is under way, because none follows
    /// before its answer.
    pub(super) fn sent(&mut self, asked: Asked) -> Behind {
        let is_behind = match asked {
            Asked::Acquire { .. } | Asked::Release => self.may_be_known(),
            Asked::Count => self.may_be_known() || self.count,
            Asked::Renewal => false,
        };
        if let Asked::Acquire { takes_back } = asked {
            self.acquires.under_way += 1;
            self.acquires.take_back |= takes_back;
        }
        match (asked, is_behind) {
            (Asked::Release, _) if self.release => Behind::Release,
            (_, true) => Behind::Request,
            (_, false) => Behind::Nothing,
        }
    }

    /// Notes the answer to a request.
    pub(super) fn answered(&mut self, asked: Asked, answer: Answer, now: Time) {
        match (asked, answer) {
            (Asked::Acquire { takes_back }, answer) => {
                self.acquires.answered(answer, takes_back);
                if !matches!(answer, Answer::Has(_) | Answer::HasNot) {
                    // The store may have taken back what the owner had, as a quorum does.
                    self.reported(Report::Changed, now);
                }
            }
            (Asked::Count, Answer::Has(_) | Answer::Refused) => self.count = false,
            (Asked::Count, Answer::HasNot) => {
                self.count = true;
                self.reported(Report::Changed, now);
            }
            (Asked::Count, Answer::Missing) => self.count = true,
            (Asked::Release, Answer::Has(_) | Answer::HasNot) => {
                (self.acquires.is_unanswered, self.release) = (false, false);
            }
            (Asked::Release, Answer::Missing) => self.release = true,
            (Asked::Count, Answer::NotExecuted)
            | (Asked::Release, Answer::NotExecuted | Answer::Refused)
            | (Asked::Renewal, _) => {}
        }
        if let Answer::Has(sent_at) = answer {
            self.reported = self.reported.filter(|reported| reported.at >= sent_at);
        }
    }

    /// Notes that the lock may have changed without a request of this client.
    pub(super) fn reported(&mut self, report: Report, now: Time) {
        let is_checked = match report {
            Report::Changed => true,
            Report::Missed { is_heard } => is_heard || self.is_checked(),
            Report::HandedOff => return self.reported = None,
            Report::GrantedAgain => return self.was_gone = true,
        };
        self.reported = Some(Reported {
            at: now,
            is_checked,
        });
    }

    /// Returns whether another hold may follow.
    pub(super) fn admits_hold(&self) -> bool {
        self.admits_owner() && !self.must_be_confirmed()
    }

    /// Returns whether another hold may follow once a request has confirmed the ownership. Otherwise, the next call asks with
    /// another owner.
    pub(super) fn admits_owner(&self) -> bool {
        !self.acquires.take_back && !self.was_gone
    }

    /// Returns whether a request must find the lock before another hold follows.
    pub(super) fn must_be_confirmed(&self) -> bool {
        self.reported.is_some()
    }

    /// Returns whether a renewal must find that out at once.
    pub(super) fn is_checked(&self) -> bool {
        self.reported.is_some_and(|reported| reported.is_checked)
    }

    /// Returns whether the store may have granted the lock to the owner, or queued the owner, by an acquire without an answer.
    pub(super) fn may_be_known(&self) -> bool {
        self.is_awaited() || self.acquires.is_unanswered
    }

    /// Returns whether an acquire may still get an answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.acquires.under_way > 0
    }

    /// Returns whether the store may show another count than it last confirmed.
    pub(super) fn hides_count(&self) -> bool {
        self.count
    }
}

impl Acquires {
    fn answered(&mut self, answer: Answer, takes_back: bool) {
        self.under_way -= 1;
        match answer {
            Answer::Has(_) | Answer::HasNot => self.is_unanswered = false,
            Answer::NotExecuted | Answer::Refused => {}
            Answer::Missing => self.is_unanswered = true,
        }
        if self.under_way == 0 {
            self.take_back = match answer {
                Answer::Missing => takes_back,
                _ => self.take_back && self.is_unanswered,
            };
        }
    }
}
