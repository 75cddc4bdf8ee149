//! The release of an ownership. The call that ends it sends the first request, and the background any further ones.

use std::time::Duration;

use super::{
    CallId, Context, IDLE, Life, Machine, Owner,
    call::{Call, Leaving},
    input::Failure,
    output::{Ask, Claimed, Output, Refusal, Request, Step},
    slot::Slot,
};
use crate::{few::one, lease::Time, lost::LostCause, store::Applied, wait::Spread};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Release {
    pub(super) progress: Progress,
    under_way: Option<UnderWay>,
    failures: u32,
    /// When the next attempt may be made.
    not_before: Time,
    /// Until when attempts are made.
    give_up: Time,
    /// The call that waits for the next attempt.
    waiting: Option<CallId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    #[default]
    Unsent,
    /// A request that was sent within the lease may have been executed. Its reply was not received.
    InDoubt,
    Confirmed,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UnderWay {
    request: u64,
    is_of_call: bool,
    /// By when it has a reply.
    answered_by: Time,
}

impl Release {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins the attempts.
    pub(super) fn begin(&mut self, now: Time, give_up: Time) {
        (self.failures, self.not_before, self.give_up) = (0, now, give_up);
    }

    fn failed(&mut self, now: Time, spread: Spread) {
        self.not_before = now + spread.after_failures(self.failures);
        self.failures += 1;
    }

    /// Forgets the request of a call, whose future may never be polled again. The background sends the next one.
    pub(super) fn leave_to_background(&mut self, now: Time) {
        if self
            .under_way
            .take_if(|request| request.is_of_call)
            .is_some()
        {
            self.failed(now, Spread::default());
        }
    }

    /// Returns when the background has to look at it.
    pub(super) fn due(&self) -> Time {
        match self.under_way {
            Some(request) => request.answered_by,
            None => self.not_before.min(self.give_up),
        }
    }
}

impl Slot {
    /// Makes the background release an ownership that has ended, or gives the release up with its lease. A request of a call
    /// that is not polled is due, too: its reply may never be read.
    pub(super) fn release_in_background(&mut self, owner: Owner, cx: &mut Context) {
        let now = cx.now;
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if own.release.is_under_way() {
            own.release.leave_to_background(now);
            return self.release_ended(owner, Ok(()), cx);
        }
        let left = own.release.give_up.since(now);
        if !left.is_zero() {
            let request = self.release(owner, left, None, cx);
            return cx.outputs.extend(request.map(Output::Send));
        }
        // The lease has ended the lock.
        own.release.progress = Progress::Confirmed;
        if own.release.failures > 0 {
            let (mode, was_held) = (own.mode, own.hold().is_some());
            cx.outputs.push(Output::GaveUp {
                key: self.key.clone(),
                owner,
                mode,
                was_held,
            });
        }
        self.release_ended(owner, Ok(()), cx);
    }

    /// Returns the request that releases an ownership.
    pub(super) fn release(
        &mut self,
        owner: Owner,
        left: Duration,
        by: Option<(CallId, Result<(), LostCause>, Time)>,
        cx: &mut Context,
    ) -> Option<Box<Request>> {
        let (call, held, give_up) = match by {
            Some((call, held, give_up)) => (Some(call), held, give_up),
            None => (None, Ok(()), Time::NEVER),
        };
        let (now, number) = (cx.now, cx.number());
        let timeout = left.min(cx.settings.response_timeout);
        let key = self.key.clone();
        let own = self.find_mut(owner)?;
        let repeats = own.release.progress == Progress::InDoubt;
        if own.valid_until(now).is_ok() {
            own.release.progress = Progress::InDoubt;
        }
        let claim = Claimed {
            key,
            owner,
            mode: own.mode,
            in_doubt: own.requests.is_in_doubt() || repeats,
            arrives: false,
        };
        let what = Ask::Release {
            fence: own.fence_to_pass(cx),
            min_hold: own.min_hold(now),
            repeats,
            was_held: own.hold().is_some(),
            held,
            give_up,
        };
        own.release.under_way = Some(UnderWay {
            request: number,
            is_of_call: call.is_some(),
            // The background always replies, whereas a call may not be polled.
            answered_by: call.map_or(Time::NEVER, |_| now + timeout + IDLE),
        });
        Some(Box::new(Request {
            number,
            call,
            claims: one(claim),
            what,
            timeout,
        }))
    }

    /// Applies the reply to a release. Returns the outcome once the store has executed it.
    pub(super) fn released(
        &mut self,
        request: &Request,
        repeats: bool,
        reply: Result<Applied, Failure>,
        cx: &mut Context,
    ) -> Option<Result<(), LostCause>> {
        let (now, spread, key) = (cx.now, cx.spread(), self.key.clone());
        let owner = request.claims[0].owner;
        let own = self.find_mut(owner)?;
        let is_meant = |under_way: &mut UnderWay| under_way.request == request.number;
        own.release.under_way.take_if(is_meant)?;
        let may_be_lost = own.ends_hold() && own.release.progress == Progress::InDoubt;
        let outcome = match reply {
            // Within its lease a lock is not lost by itself, so an earlier copy released it. No hold loses a lock that was
            // passed on or retained, or whose release was sent after its lease.
            Ok(Applied::NotHeld) if repeats || !may_be_lost => Ok(()),
            Ok(Applied::NotHeld) => Err(own.ended_by_clock(now).unwrap_or(LostCause::Removed)),
            Ok(Applied::Done) => Ok(()),
            Err(failure) => {
                own.release.failed(now, spread);
                if !repeats && !failure.maybe_executed {
                    own.release.progress = Progress::Unsent;
                }
                let waiting = own.release.waiting.and_then(|call| cx.calls.get_mut(&call));
                match waiting.and_then(Call::leaving) {
                    _ if failure.transient => {}
                    Some(leaving) => leaving.give_up = now,
                    None => own.release.give_up = now,
                }
                self.release_ended(owner, Ok(()), cx);
                return None;
            }
        };
        // The server executed requests in doubt before this one.
        own.requests.all_replied();
        own.release.progress = Progress::Confirmed;
        if let Err(cause) = outcome
            && let Some(hold) = own.hold().filter(|_| own.lost.is_none())
        {
            let loss = own.loss(&key, hold, cause);
            own.lost = Some(cause);
            cx.outputs.push(Output::Lost(Box::new(loss)));
        }
        self.release_ended(owner, outcome, cx);
        Some(outcome)
    }

    /// Wakes the call that waits for an attempt. If that was the last one, the call has its outcome.
    fn release_ended(&mut self, owner: Owner, outcome: Result<(), LostCause>, cx: &mut Context) {
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        let Some(call) = own.release.waiting else {
            return;
        };
        cx.wake(call);
        if own.release.progress == Progress::Confirmed
            && let Some(leaving) = cx.calls.get_mut(&call).and_then(Call::leaving)
        {
            leaving.outcome = Some(outcome.and(leaving.held));
        }
    }
}

impl Machine {
    /// Returns the next step of a call that ends its entry, and when to wake it.
    pub(super) fn leave_step(&mut self, id: CallId, leaving: &mut Leaving) -> Step {
        let (now, life) = (self.cx.now, self.cx.life);
        let own = self.own_mut(&leaving.key, leaving.owner);
        if let Some(outcome) = leaving.outcome {
            return Step::Left(outcome);
        }
        let Some(own) = own else {
            return Step::Left(leaving.held);
        };
        if life == Life::Ended {
            Step::Left(Err(LostCause::Closed))
        } else if now >= leaving.give_up {
            own.release.waiting = None;
            Step::Refused(Refusal::Failed)
        } else {
            own.release.waiting = Some(id);
            self.cx.wait(leaving.give_up)
        }
    }
}
