//! How an ownership that has ended leaves the store: the background's releases, the replies, and the call that waits for one.

use super::{
    CallId, Common, Life, Owner,
    call::{Call, Calls, Ending},
    input::Failure,
    output::{Output, Refusal, Request, Step},
    ownership::Ownership,
    slot::Slot,
    slots::Slots,
};
use crate::{lost::LostCause, store::Applied};

impl Slot {
    /// Makes the background release an ownership that has ended, or gives the release up with its lease. A request of a call
    /// that is not polled is due, too: its reply may never be read.
    pub(super) fn release_in_background(
        &mut self,
        owner: Owner,
        calls: &mut Calls,
        cx: &mut Common,
    ) {
        let (id, key, now) = (self.id, self.key.clone(), cx.now);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if own.pass_release_on(now).is_none() {
            let rest = own.release_rest(now);
            if !rest.is_zero() {
                let request = own.release(id, key, rest, None, cx);
                return cx.outputs.extend(request.map(Output::Send));
            }
            cx.outputs.extend(own.stop_releasing(key));
        }
        self.tell_ending(owner, Ok(()), calls, cx);
    }

    /// Applies the reply to a release of a hold that was valid or lost when the request was sent. Returns the outcome once the
    /// store has executed it.
    pub(super) fn released(
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
        own.release_answered(request.number)?;
        let applied = match reply {
            Ok(applied) => applied,
            Err(failure) => {
                own.release_failed(failure, now, spread);
                if !failure.transient {
                    let waiting = own.release_mut().and_then(|release| release.waiting);
                    let waiting = waiting.and_then(|call| calls.get_mut(&call));
                    if let Some(ending) = waiting.and_then(Call::ending) {
                        ending.waits_until = now;
                    } else {
                        cx.outputs.extend(own.give_up(key));
                    }
                }
                self.tell_ending(owner, Ok(()), calls, cx);
                return None;
            }
        };
        let outcome = own.released(applied, held.is_ok() && !request.repeats(), now);
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
        let own = self.find_mut(owner);
        let Some(release) = own.and_then(Ownership::release_mut) else {
            return;
        };
        let Some(call) = release.waiting else {
            return;
        };
        cx.wake(call);
        if release.is_done()
            && let Some(ending) = calls.get_mut(&call).and_then(Call::ending)
        {
            ending.outcome = Some(outcome.and(ending.held));
        }
    }
}

impl Ending {
    /// Returns the next step of a call that ends its entry, and when to wake it.
    pub(super) fn step(&mut self, id: CallId, slots: &mut Slots, cx: &mut Common) -> Step {
        if let Some(outcome) = self.outcome {
            return Step::Left(outcome);
        }
        let own = slots.own_mut(self.slot, self.owner);
        let Some(release) = own.and_then(Ownership::release_mut) else {
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
