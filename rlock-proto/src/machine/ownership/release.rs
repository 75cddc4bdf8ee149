//! When a lock is released on the store, and until when a release without a reply is repeated. The call that ends it
//! sends the first request, and the background any further ones, until the lease has ended the lock at the store.
//!
//! If the store refuses a release for good, the client gives it up, but remembers the owner until the lease ends: a message may
//! show that the store has the owner in its wait queue, and then the client releases it again, with its fence.

use std::time::Duration;

use super::{Ownership, Phase, tries::Tries};
use crate::{
    few::one,
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{
        CallId, Common, Life, Owner, Slot,
        call::{Call, Calls, Ending},
        doubt::{Answer, Asked},
        input::Failure,
        output::{Ask, Output, Refusal, Request, Step},
        patience::IDLE,
        slots::Slots,
    },
    store::Applied,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Release {
    progress: Progress,
    /// When the lease ends at the store. From then on the background sends no release.
    until: Time,
    /// The call that waits for the next try.
    waiting: Option<CallId>,
    /// Whether a hold ended with the ownership. Only such a release can find a loss.
    ends_hold: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// The store may still have the lock.
    Due,
    /// The store refuses the release for good, and may still have the lock.
    GivenUp,
    /// The store does not have the lock.
    Done,
}

impl Release {
    fn new(ends_hold: bool, until: Time) -> Self {
        Self {
            progress: Progress::Due,
            until,
            waiting: None,
            ends_hold,
        }
    }

    /// Returns when the background has to look at it.
    pub(super) fn due(&self, tries: &Tries) -> Time {
        match self.progress {
            _ if tries.is_under_way() => tries.due(),
            Progress::Due => tries.due().min(self.until),
            Progress::GivenUp => self.until,
            Progress::Done => Time::NEVER,
        }
    }

    /// Returns whether no request is under way, and none will be.
    pub(super) fn is_over(&self, tries: &Tries, now: Time) -> bool {
        let is_over = match self.progress {
            Progress::Due => false,
            Progress::GivenUp => now >= self.until,
            Progress::Done => true,
        };
        is_over && !tries.is_under_way()
    }
}

impl Ownership {
    /// Ends the ownership, which is released from then on.
    pub(in crate::machine) fn end(&mut self, now: Time) {
        let ends_hold = self.phase() == Phase::Held;
        self.tries = Tries::from(now);
        let release = Release::new(ends_hold, now + self.lease.full);
        self.status.end(release);
    }

    /// Returns whether it is being released, and the store may still have the lock.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        let release = self.status.release();
        release.is_some_and(|release| release.progress == Progress::Due)
    }

    /// Releases it once more, because the store may have granted it the lock or queued it after its release was executed or
    /// given up.
    pub(in crate::machine) fn release_again(&mut self, now: Time) {
        let until = now + self.lease.full;
        if let Some(release) = self.status.release_mut()
            && release.progress != Progress::Due
        {
            // The outcome of its hold is known, so this release finds no loss.
            *release = Release::new(false, until);
            self.tries = Tries::from(now);
        }
    }

    /// Makes the tries at its release last until this time at least.
    pub(in crate::machine) fn release_until(&mut self, least: Time) {
        if let Some(release) = self.status.release_mut() {
            release.until = release.until.max(least);
        }
    }

    /// Leaves its release to the background if the request of a call is under way, whose future may never be polled again.
    /// Returns when that was sent.
    pub(in crate::machine) fn pass_release_on(&mut self, now: Time) -> Option<Time> {
        let sent_at = self
            .status
            .release()
            .and_then(|_| self.tries.forget_call(now))?;
        self.doubt.answered(Asked::Release, Answer::Missing, now);
        Some(sent_at)
    }

    /// Returns the last known fence, if the store may lack it or forget it soon, or 0.
    pub(super) fn fence_to_pass(&self, cx: &Common) -> u64 {
        // Other members of a quorum may lack the fence.
        let is_needed =
            cx.settings.needs_majority || self.tokens.may_be_forgotten(self.mode, cx.now);
        if is_needed { self.tokens.fence() } else { 0 }
    }

    /// Returns how long the lock stays taken after its release.
    pub(super) fn min_hold(&self, now: Time) -> Duration {
        let until = self.hold().and_then(|hold| hold.min_hold_until);
        until.map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Reports that its release was given up.
    fn given_up(&self, key: Key) -> Output {
        Output::GaveUp {
            key,
            owner: self.owner,
            mode: self.mode,
            was_held: self.hold().is_some(),
        }
    }
}

impl Slot {
    /// Makes the background release an ownership that has ended, or gives the release up with its lease. A request of a call
    /// that is not polled is due, too: its reply may never be read.
    pub(in crate::machine) fn release_in_background(
        &mut self,
        owner: Owner,
        calls: &mut Calls,
        cx: &mut Common,
    ) {
        let (now, key) = (cx.now, self.key.clone());
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if own.pass_release_on(now).is_some() {
            return self.tell_ending(owner, Ok(()), calls, cx);
        }
        let Some(release) = own.status.release_mut() else {
            return;
        };
        let rest = release.until.since(now);
        if !rest.is_zero() {
            let request = self.release(owner, rest, None, cx);
            return cx.outputs.extend(request.map(Output::Send));
        }
        release.progress = Progress::Done;
        if own.tries.have_failed() {
            cx.outputs.push(own.given_up(key));
        }
        self.tell_ending(owner, Ok(()), calls, cx);
    }

    /// Returns the request that releases an ownership. `by`: the call that sends it, and when it gives up.
    pub(in crate::machine) fn release(
        &mut self,
        owner: Owner,
        rest: Duration,
        by: Option<(CallId, Time)>,
        cx: &mut Common,
    ) -> Option<Box<Request>> {
        let (call, waits_until) = by.map_or((None, Time::NEVER), |(call, at)| (Some(call), at));
        let (now, number) = (cx.now, cx.number());
        let timeout = rest.min(cx.settings.response_timeout);
        let (slot, key) = (self.id, self.key.clone());
        let own = self.find_mut(owner)?;
        let what = Ask::Release {
            fence: own.fence_to_pass(cx),
            min_hold: own.min_hold(now),
            was_held: own.hold().is_some(),
            held: own.valid_until(now).map(|_| ()),
            waits_until,
        };
        let answered_by = call.map_or(Time::NEVER, |_| now + timeout + IDLE);
        own.status.release()?;
        own.tries.sent(number, now, answered_by);
        Some(Box::new(Request {
            number,
            call,
            claims: one(own.claimed(Asked::Release, slot, key, false)),
            what,
            timeout,
        }))
    }

    /// Applies the reply to a release of a hold that was valid or lost when the request was sent. Returns the outcome once the
    /// store has executed it.
    pub(in crate::machine) fn released(
        &mut self,
        request: &Request,
        held: Result<(), LostCause>,
        reply: Result<Applied, Failure>,
        calls: &mut Calls,
        cx: &mut Common,
    ) -> Option<Result<(), LostCause>> {
        let (now, spread, key) = (cx.now, cx.spread(), self.key.clone());
        let owner = request.claims[0].owner;
        let own = self.find_mut(owner)?;
        let release = own.status.release_mut()?;
        own.tries.answered(request.number)?;
        let applied = match reply {
            Ok(applied) => applied,
            Err(failure) => {
                own.tries.failed(now, spread);
                own.doubt.answered(Asked::Release, failure.into(), now);
                if !failure.transient {
                    let waiting = release.waiting.and_then(|call| calls.get_mut(&call));
                    if let Some(ending) = waiting.and_then(Call::ending) {
                        ending.waits_until = now;
                    } else {
                        release.progress = Progress::GivenUp;
                        cx.outputs.push(own.given_up(key));
                    }
                }
                self.tell_ending(owner, Ok(()), calls, cx);
                return None;
            }
        };
        release.progress = Progress::Done;
        // A missing lock is a loss only if a hold ended with the ownership, the hold was valid when the release was sent, and no
        // earlier release may have taken the lock.
        let may_be_lost = release.ends_hold && held.is_ok() && !request.repeats();
        own.doubt.answered(Asked::Release, Answer::HasNot, now);
        let outcome = match applied {
            Applied::NotHeld if may_be_lost => {
                Err(own.timed_out(now).unwrap_or(LostCause::Removed))
            }
            Applied::NotHeld | Applied::Done => Ok(()),
        };
        if let Err(cause) = outcome {
            cx.outputs.extend(own.lose(&key, cause));
        }
        self.tell_ending(owner, outcome, calls, cx);
        Some(outcome)
    }

    /// Wakes the call that waits for a try. If that was the last one, the call has its outcome.
    fn tell_ending(
        &mut self,
        owner: Owner,
        outcome: Result<(), LostCause>,
        calls: &mut Calls,
        cx: &mut Common,
    ) {
        let release = self.find(owner).and_then(|own| own.status.release());
        let Some(release) = release else {
            return;
        };
        let Some(call) = release.waiting else {
            return;
        };
        cx.wake(call);
        if release.progress == Progress::Done
            && let Some(ending) = calls.get_mut(&call).and_then(Call::ending)
        {
            ending.outcome = Some(outcome.and(ending.held));
        }
    }
}

impl Ending {
    /// Returns the next step of a call that ends its entry, and when to wake it.
    pub(in crate::machine) fn step(
        &mut self,
        id: CallId,
        slots: &mut Slots,
        cx: &mut Common,
    ) -> Step {
        if let Some(outcome) = self.outcome {
            return Step::Left(outcome);
        }
        let own = slots.own_mut(self.slot, self.owner);
        let Some(release) = own.and_then(|own| own.status.release_mut()) else {
            return Step::Left(self.held);
        };
        if cx.life == Life::Ended {
            Step::Left(Err(LostCause::Closed))
        } else if cx.now >= self.waits_until {
            release.waiting = None;
            Step::Refused(Refusal::Failed)
        } else {
            release.waiting = Some(id);
            cx.wait(self.waits_until)
        }
    }
}
