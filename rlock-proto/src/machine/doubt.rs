//! Tracks what the client does not know of an ownership: which requests without a reply may have run, and which reported
//! changes a renewal has to check.
//!
//! | what happened | what may be true at the store | what must follow |
//! | --- | --- | --- |
//! | an acquire has no answer, or not yet | it has granted the lock or queued the owner, or will | a release, even if nothing else is known of the owner; until then, the server executes each request behind the acquire |
//! | … but a later acquire has one | the earlier one may still arrive, and grant the lock or queue the owner | a release that makes the store refuse it |
//! | … on a quorum | the same, and it has taken its grant back, or will | no hold: the next call asks with another owner |
//! | a count has no answer, or found no lock | the store shows this count, or the one before | the count again, behind it |
//! | a release has no answer | the lock is free | the release again, behind it, and it may find no lock |
//! | another client changed the lock, messages were missed, or an acquire failed | the lock is gone | a request that is sent later and finds the lock, before another hold; if messages are heard, a renewal at once |
//! | a grant has another fence than the tokens, or brings none | the lock was gone in between, and holds of that time may remain | no hold: the next call asks with another owner |
//!
//! An answer of the store ends the doubt about all earlier requests of its kind, because the server executed them before. Only an acquire
//! may still arrive, over a connection that was given up.

use crate::lease::Time;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    /// How many acquires may still get an answer.
    under_way: u8,
    unanswered: Unanswered,
    /// Whether an acquire may take its grant back.
    takes_back: bool,
    /// Whether the owner is of no use: its lock was gone between two grants.
    is_spent: bool,
    /// When the latest report came in, until a later request finds the lock.
    reported_at: Option<Time>,
    /// Whether a renewal is due at once because of that report.
    is_urgent: bool,
}

/// Which requests get no answer, although the store may have executed them, or may yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Unanswered {
    acquire: Missing,
    count: bool,
    release: bool,
}

/// Which acquires got no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Missing {
    #[default]
    None,
    /// Earlier ones than the last that was answered. They may still arrive, over another connection.
    Earlier,
    /// One that no answered acquire has followed.
    Latest,
}

/// A request that can leave a doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    /// `takes_back`: whether it may take its grant back without an answer that says so.
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
    /// Messages were missed, so another client may have changed the lock. `is_heard`: whether messages arrive again.
    Missed { is_heard: bool },
    /// The store handed the lock off to the owner, after all that was reported before.
    HandedOff,
    /// A grant brought no tokens, or those of another fence.
    Spent,
}

/// The unanswered request behind which the server must execute a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Behind {
    Nothing,
    /// Requests that may still arrive, although a later one was executed.
    Late,
    Request,
    /// A release, which may have ended the ownership.
    Release,
}

impl Doubt {
    /// Begins a request, and returns behind which one the server must execute it. Only acquires follow each other before they are
    /// answered.
    pub(super) fn sent(&mut self, asked: Asked) -> Behind {
        let behind = match asked {
            Asked::Release if self.unanswered.release => Behind::Release,
            Asked::Count if self.hides_count() => Behind::Request,
            _ if self.may_be_known() => Behind::Request,
            Asked::Release if self.needs_release() => Behind::Late,
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
        let unanswered = &mut self.unanswered;
        match (asked, answer) {
            (_, Answer::NotExecuted) => {}
            (Asked::Acquire { .. }, Answer::Missing) => unanswered.acquire = Missing::Latest,
            (Asked::Acquire { .. }, _) if unanswered.acquire == Missing::None => {}
            (Asked::Acquire { .. }, _) => unanswered.acquire = Missing::Earlier,
            (Asked::Count, _) => unanswered.count = answer == Answer::Missing,
            (Asked::Release, _) => unanswered.release = answer == Answer::Missing,
        }
        match (asked, answer) {
            (Asked::Acquire { takes_back }, _) => {
                self.under_way -= 1;
                if self.under_way == 0 {
                    self.takes_back = takes_back && answer == Answer::Missing;
                }
                if matches!(answer, Answer::NotExecuted | Answer::Missing) {
                    // A quorum may have taken back what the owner had.
                    self.reported(Report::Changed, now);
                }
            }
            (Asked::Count, Answer::HasNot) => {
                self.unanswered.count = true;
                self.reported(Report::Changed, now);
            }
            (Asked::Count | Asked::Release, _) => {}
        }
        if let Answer::Has(sent_at) = answer {
            self.found(sent_at);
        }
    }

    /// Ends the doubt of reports before this time, at which a request was sent that found the lock, as a renewal.
    pub(super) fn found(&mut self, sent_at: Time) {
        self.reported_at = self.reported_at.filter(|at| *at >= sent_at);
        self.is_urgent &= self.must_be_confirmed();
    }

    /// Opens or ends the doubt that comes from a report, because the lock may change without a request of this client.
    pub(super) fn reported(&mut self, report: Report, now: Time) {
        match report {
            Report::HandedOff => (self.reported_at, self.is_urgent) = (None, false),
            Report::Spent => self.is_spent = true,
            Report::Changed | Report::Missed { .. } => {
                self.reported_at = Some(now);
                self.is_urgent |= report != Report::Missed { is_heard: false };
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
        !self.takes_back && !self.is_spent
    }

    /// Returns whether a request must find the lock before another hold follows.
    pub(super) fn must_be_confirmed(&self) -> bool {
        self.reported_at.is_some()
    }

    /// Returns whether a renewal must look for the lock at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Returns whether the store may have granted the lock to the owner, or queued the owner, by an acquire without an answer.
    pub(super) fn may_be_known(&self) -> bool {
        self.is_awaited() || self.unanswered.acquire == Missing::Latest
    }

    /// Returns whether an acquire may have been executed without an answer, or may be yet, so that a release must follow.
    pub(super) fn needs_release(&self) -> bool {
        self.is_awaited() || self.unanswered.acquire != Missing::None
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

#[cfg(test)]
mod tests {
    use super::*;

    const ACQUIRE: Asked = Asked::Acquire { takes_back: false };

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Returns the doubt after a request that was sent once, and this answer.
    fn after(asked: Asked, answer: Answer) -> Doubt {
        let mut doubt = Doubt::default();
        assert_eq!(doubt.sent(asked), Behind::Nothing);
        doubt.answered(asked, answer, at(9));
        doubt
    }

    #[test]
    fn a_request_goes_behind_each_one_before_that_may_still_be_executed() {
        for (answer, expected) in [
            (Answer::Missing, Behind::Request),
            (Answer::NotExecuted, Behind::Nothing),
            (Answer::HasNot, Behind::Nothing),
        ] {
            let mut doubt = after(ACQUIRE, answer);
            assert_eq!(doubt.may_be_known(), expected == Behind::Request);
            assert_eq!(doubt.sent(Asked::Release), expected, "{answer:?}");
        }
        let mut doubt = after(ACQUIRE, Answer::Missing);
        assert_eq!(doubt.sent(ACQUIRE), Behind::Request);
        doubt.answered(ACQUIRE, Answer::NotExecuted, at(10));
        assert_eq!(doubt.sent(Asked::Release), Behind::Request, "the first one");
        assert_eq!(doubt.sent(ACQUIRE), Behind::Request);
        doubt.answered(ACQUIRE, Answer::HasNot, at(11));
        assert!(doubt.needs_release() && !doubt.may_be_known());
        let release = doubt.sent(Asked::Release);
        assert_eq!(release, Behind::Late, "the earlier ones may still arrive");
        let again = doubt.sent(ACQUIRE);
        assert_eq!(again, Behind::Nothing, "the later one was executed");
        let mut doubt = after(Asked::Release, Answer::Missing);
        assert_eq!(doubt.sent(Asked::Release), Behind::Release);
    }

    #[test]
    fn a_count_is_sent_again_until_the_store_is_known_to_show_it_or_refuses_it() {
        for (answer, expected) in [
            (Answer::Missing, true),
            (Answer::HasNot, true),
            (Answer::NotExecuted, false),
        ] {
            let mut doubt = after(Asked::Count, answer);
            assert_eq!(doubt.hides_count(), expected, "{answer:?}");
            assert_eq!(doubt.sent(Asked::Count) == Behind::Request, expected);
            assert_eq!(doubt.sent(Asked::Release), Behind::Nothing);
            doubt.answered(Asked::Count, Answer::Refused, at(10));
            assert!(!doubt.hides_count());
        }
    }

    #[test]
    fn a_reported_change_is_urgent_until_a_later_request_confirms_the_lock() {
        let reported = |report| {
            let mut doubt = Doubt::default();
            doubt.reported(report, at(5));
            doubt
        };
        let silent = reported(Report::Missed { is_heard: false });
        assert!(!silent.admits_hold() && silent.admits_owner() && !silent.is_urgent());
        for report in [Report::Changed, Report::Missed { is_heard: true }] {
            let mut doubt = reported(report);
            assert!(!doubt.admits_hold() && doubt.is_urgent());
            doubt.found(at(5));
            assert!(doubt.must_be_confirmed() && doubt.is_urgent());
            doubt.found(at(6));
            assert!(doubt.admits_hold() && !doubt.is_urgent());
        }
        let mut doubt = reported(Report::Changed);
        doubt.reported(Report::HandedOff, at(6));
        assert!(doubt.admits_hold() && !doubt.is_urgent());
        let failed = after(ACQUIRE, Answer::NotExecuted);
        assert!(failed.must_be_confirmed() && failed.is_urgent());
    }
}
