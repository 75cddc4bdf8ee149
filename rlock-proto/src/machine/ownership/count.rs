//! When the background tells the store the count of nested entries, or a downgrade; no call waits for either.
//!
//! The background sends it, one request at a time for an owner, and each request says what the store should show by then. So it
//! corrects whatever an earlier one left, and entries that leave soon cost no request.

use std::time::Duration;

use super::{
    Ownership,
    phase::{Purpose, Status},
};
use crate::{
    few::one,
    key::Key,
    lease::Time,
    machine::{
        Common, SlotId,
        doubt::{Answer, Asked},
        input::Failure,
        output::{Ask, Output, Request},
    },
    mode::LockMode,
    store::Applied,
};

/// How long a count is kept back, because most nested calls leave sooner.
const SOON: Duration = Duration::from_millis(20);

/// What the store shows of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shown {
    /// The number of entries in an exclusive lock.
    Count(u32),
    /// The owner has no count, because it tolerates other holders.
    Shared,
}

impl Shown {
    /// Returns what the store shows once it has granted an owner a lock in this mode.
    pub(super) fn when_granted(mode: LockMode) -> Self {
        match mode {
            LockMode::Exclusive => Self::Count(1),
            LockMode::Shared | LockMode::Permits { .. } => Self::Shared,
        }
    }
}

impl Ownership {
    /// Schedules the count, because an entry comes or has left: soon, and before the rest of the lease ends, because
    /// nothing else may extend it.
    pub(in crate::machine) fn entries_change(&mut self, now: Time) {
        let soon = SOON.min(self.rest(now) / 2);
        self.tries.put_off(now, soon);
    }

    /// Makes the exclusive lock a shared one. The background tells the store at once, because others may join.
    pub(in crate::machine) fn downgrade(&mut self, now: Time) {
        self.mode = LockMode::Shared;
        if let Some(hold) = self.hold_mut() {
            (hold.used, hold.open_since) = (LockMode::Shared, now);
        }
        self.tries.follow_at(now);
    }

    /// Returns what the store should show, while this client has the lock. `counts`: whether the store counts nested entries.
    fn should_show(&self, counts: bool) -> Option<Shown> {
        match &self.status {
            // A count would extend the lock, which is lost.
            _ if self.lost.is_some() => None,
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_))
                if self.mode != LockMode::Exclusive =>
            {
                Some(Shown::Shared)
            }
            // The store does not count the calls that share a hold.
            Status::Owned(hold, Purpose::Hold) if counts && hold.used == LockMode::Exclusive => {
                Some(Shown::Count(hold.entries()))
            }
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_)) => Some(Shown::Count(1)),
            // It may be released before a call uses it.
            Status::Owned(_, Purpose::NextCall)
            | Status::Asking
            | Status::Lost(_)
            | Status::Ended(..) => None,
        }
    }

    /// Returns whether the store is known to show the entries of the hold. `counts`: whether it counts nested ones.
    #[must_use]
    pub fn is_told(&self, counts: bool) -> bool {
        let is_idle = !self.tries.is_under_way();
        let is_shown = |shows| self.shown == shows && !self.doubt.hides_count();
        self.should_show(counts)
            .is_none_or(|shows| is_idle && is_shown(shows))
    }

    /// Returns when the store has to be told of a change, and never if none is due.
    pub(super) fn count_due(&self, counts: bool) -> Time {
        match self.tries.due() {
            due if !self.is_told(counts) => due,
            _ => Time::NEVER,
        }
    }

    /// Makes the background tell the store what it should show of this owner.
    pub(in crate::machine) fn send_count(&mut self, slot: SlotId, key: Key, cx: &mut Common) {
        let now = cx.now;
        let Some(shows) = self.should_show(cx.settings.counts_entries) else {
            return;
        };
        let number = cx.number();
        let what = match shows {
            Shown::Count(count) => Ask::SetCount {
                count,
                lease: self.lease(),
            },
            Shown::Shared => Ask::Downgrade {
                fence: self.fence_to_pass(cx),
            },
        };
        let timeout = self.rest(now).min(cx.settings.response_timeout);
        self.tries.sent(number, now, Time::NEVER);
        cx.outputs.push(Output::Send(Box::new(Request {
            number,
            call: None,
            claims: one(self.claimed(Asked::Count, slot, key, false)),
            what,
            timeout,
        })));
    }

    /// Applies the reply to a request that told the store what to show.
    ///
    /// If the store does not have the lock, a renewal is due at once and decides whether the lock is lost, because a quorum may be
    /// about to restore it at some of its members.
    pub(in crate::machine) fn count_answered(
        &mut self,
        request: &Request,
        reply: Result<Applied, Failure>,
        cx: &mut Common,
    ) {
        let (now, spread) = (cx.now, cx.spread());
        let Some(sent_at) = self.tries.answered(request.number) else {
            return;
        };
        let answer = match reply {
            Ok(Applied::Done) => Answer::Has(sent_at),
            Ok(Applied::NotHeld) => Answer::HasNot,
            Err(failure) if !failure.transient => Answer::Refused,
            Err(failure) => failure.into(),
        };
        self.doubt.answered(Asked::Count, answer, now);
        if !matches!(answer, Answer::Has(_) | Answer::Refused) {
            return self.tries.failed(now, spread);
        }
        self.tries.succeeded();
        self.shown = match request.what {
            Ask::SetCount { count, lease } => {
                if let Answer::Has(sent_at) = answer {
                    self.kept(sent_at, lease, now);
                }
                Shown::Count(count)
            }
            _ => Shown::Shared,
        };
    }
}
