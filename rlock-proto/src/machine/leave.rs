//! The end of an entry: the change of the store's count, and the release.

use std::time::Duration;

use super::{
    CallId, Context, Entry, IDLE, Life, Machine, Owner,
    call::{Call, Leaving, Work},
    count::{Release, Todo},
    input::Failure,
    output::{Ask, Claimed, HoldEnd, Output, Refusal, Request, Step},
    ownership::{Ownership, Phase},
    slot::Slot,
};
use crate::{few::one, lease::Time, lost::LostCause, mode::LockMode, store::Released};

impl Machine {
    /// Returns how many other entries of its hold need the exclusive lock of this entry.
    #[must_use]
    pub fn others(&self, entry: &Entry) -> u32 {
        let own = self.own(&entry.key, entry.owner);
        let own = own.filter(|own| own.has(entry.number) && own.used() == LockMode::Exclusive);
        own.map_or(0, |own| own.others(&self.cx))
    }
}

impl Slot {
    /// Removes an entry. Returns the next step of its call.
    pub(super) fn leave(
        &mut self,
        entry: &Entry,
        end: HoldEnd,
        call: Option<CallId>,
        cx: &mut Context,
    ) -> Step {
        let (owner, now) = (entry.owner, cx.now);
        let Some(own) = self.find_mut(owner) else {
            return Step::Left(Ok(()));
        };
        let broken = own.valid_until(now).err();
        let held = broken.map_or(Ok(()), Err);
        if !own.has(entry.number) {
            return Step::Left(held);
        }
        if let Some(cause) = broken {
            self.lose(owner, cause, cx);
        }
        let may_continue = broken.is_none() && !cx.settings.replicas && !cx.is_closed();
        let counts = cx.settings.counts_entries;
        let Some(own) = self.find_mut(owner) else {
            return Step::Left(held);
        };
        let has_succeeded = end == HoldEnd::Released && broken.is_none();
        let ended = (own.hold_mut()).and_then(|hold| hold.remove(entry.number, has_succeeded));
        if let Some(first) = ended.filter(|_| matches!(own.phase(), Phase::Held | Phase::Lost)) {
            cx.ended(own, first, end);
        }
        match own.phase() {
            Phase::Held if own.entries() > 0 => {
                if counts && own.used() == LockMode::Exclusive {
                    // Sent although the store may have this count: its reply shows a loss.
                    own.count.known = None;
                }
            }
            Phase::Held => self.end_hold(owner, may_continue, cx),
            Phase::Lost if own.entries() == 0 => {
                own.end(now);
                return Step::Left(held);
            }
            _ => return Step::Left(held),
        }
        let Some(own) = self.find_mut(owner) else {
            return Step::Left(held);
        };
        let call = call.filter(|_| cx.life != Life::Ended);
        let (Some(count), Some(call)) = (own.wanted_count(counts), call) else {
            return Step::Left(held);
        };
        // The result of the body waits for one response time-out. The background makes further attempts.
        let patience = cx.settings.response_timeout;
        if count == 0 {
            own.count.restart(now, now + own.lease.full.max(patience));
        }
        let give_up = now + patience;
        if count == 0 || !own.count.is_under_way() {
            let by = Some((call, held, give_up));
            let request = self.lower(owner, count, patience, by, cx);
            return request.map_or(Step::Left(held), Step::Send);
        }
        own.count.waiting.push(call);
        let leaving = Leaving {
            key: self.key.clone(),
            owner,
            held,
            outcome: None,
            give_up,
        };
        cx.calls.insert(call, Call::new(Work::Leave(leaving)));
        cx.look_at_call(call, give_up);
        Step::Wait
    }

    /// Makes the exclusive lock of an entry a shared one, and lets those join who wait for that.
    pub(super) fn downgrade(&mut self, entry: &Entry, cx: &mut Context) -> Step {
        let now = cx.now;
        let own = match self.valid(entry, now) {
            Ok(own) => own,
            Err(cause) => return Step::Left(Err(cause)),
        };
        let others = own.others(cx);
        if own.used() == LockMode::Exclusive && others > 0 {
            return Step::Refused(Refusal::Nested(others));
        }
        if own.mode == LockMode::Exclusive {
            own.downgrade(now);
            self.admit(cx);
        }
        Step::Left(Ok(()))
    }

    /// Adds an entry to the hold of this one.
    pub(super) fn keep(&mut self, entry: &Entry, now: Time) -> Step {
        let own = match self.valid(entry, now) {
            Ok(own) => own,
            Err(cause) => return Step::Left(Err(cause)),
        };
        let mode = own.mode;
        let kept = own.hold_mut().and_then(|hold| {
            let number = hold.keep(entry.number)?;
            let entry = Entry {
                number,
                ..entry.clone()
            };
            Some(hold.entered(entry, mode, None))
        });
        kept.map_or(Step::Left(Err(LostCause::Released)), |kept| {
            Step::Entered(one(kept))
        })
    }

    /// Returns the ownership of an entry, unless the entry has left or its hold is no longer valid. Then returns the cause.
    fn valid(&mut self, entry: &Entry, now: Time) -> Result<&mut Ownership, LostCause> {
        let own = self.find_mut(entry.owner);
        let own = own.filter(|own| own.has(entry.number));
        let own = own.ok_or(LostCause::Released)?;
        own.valid_until(now)?;
        Ok(own)
    }

    /// Makes the background correct the store's count, unless a request does, or it is right.
    pub(super) fn correct(&mut self, owner: Owner, cx: &mut Context) {
        let (now, counts) = (cx.now, cx.settings.counts_entries);
        let Some(own) = self.find_mut(owner).filter(|_| cx.life != Life::Ended) else {
            return;
        };
        if own.todo(counts, now) == Todo::Abandon {
            own.count.abandon(now);
            self.count_ended(owner, Ok(()), cx);
        }
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        match own.todo(counts, now) {
            Todo::Nothing | Todo::Abandon => {}
            Todo::Send(count, left) => {
                let request = self.lower(owner, count, left, None, cx);
                cx.outputs.extend(request.map(Output::Send));
            }
            Todo::GiveUp => {
                // The lease has ended the lock.
                let is_release = own.phase() == Phase::Ended;
                let has_failed = is_release && own.count.has_failed();
                if is_release {
                    own.count.release = Release::Confirmed;
                }
                own.count.confirmed(own.entries(), own.entries());
                own.count.restart(now, Time::NEVER);
                if has_failed {
                    let (mode, was_held) = (own.mode, own.hold().is_some());
                    cx.outputs.push(Output::GaveUp {
                        key: self.key.clone(),
                        owner,
                        mode,
                        was_held,
                    });
                }
                self.count_ended(owner, Ok(()), cx);
            }
        }
    }

    /// Returns the request that lowers the count of an owner.
    fn lower(
        &mut self,
        owner: Owner,
        count: u32,
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
        let in_doubt = own.requests.is_in_doubt() || own.count.is_in_doubt;
        let repeats = count == 0 && own.count.release == Release::InDoubt;
        let was_held = own.hold().is_some();
        if count > 0 {
            // If this is cancelled, the next request follows it. Otherwise this might set its count last.
            own.requests.begin(false, now);
        } else if own.valid_until(now).is_ok() {
            own.count.release = Release::InDoubt;
        }
        // Other members of a quorum may lack the fence.
        let passes_fence = cx.settings.needs_majority || own.tokens.may_be_forgotten(own.mode, now);
        let fence = if passes_fence { own.tokens.fence() } else { 0 };
        let min_hold = own.min_hold(now);
        let claim = Claimed {
            key,
            owner,
            mode: own.mode,
            in_doubt,
            arrives: false,
        };
        let request = Request {
            number,
            call,
            claims: one(claim),
            what: Ask::Lower {
                fence,
                count,
                min_hold,
                repeats,
                was_held,
                held,
                give_up,
            },
            timeout,
        };
        // The background always replies, whereas a call may not be polled.
        let answered_by = call.map_or(Time::NEVER, |_| now + timeout + IDLE);
        own.count.sent(&request, answered_by);
        Some(Box::new(request))
    }

    /// Applies the reply to a lower count. Returns the outcome if the store has the right count then.
    pub(super) fn lowered(
        &mut self,
        request: &Request,
        reply: Result<Released, Failure>,
        cx: &mut Context,
    ) -> Option<Result<(), LostCause>> {
        let (Ask::Lower { count, repeats, .. }, [claim]) = (&request.what, &*request.claims) else {
            return None;
        };
        let (now, spread, key) = (cx.now, cx.spread(), self.key.clone());
        let (owner, count, repeats) = (claim.owner, *count, *repeats);
        let own = self.find_mut(owner)?;
        own.count.ended(request.number)?;
        if count > 0 && claim.mode != own.mode {
            // Sent before the lock became a shared one.
            own.count.known = None;
            self.count_ended(owner, Ok(()), cx);
            return None;
        }
        let may_be_lost = count > 0 || own.ends_hold() && own.count.release == Release::InDoubt;
        let outcome = match reply {
            // Within its lease a lock is not lost by itself, so an earlier copy released it. No hold loses a lock that was
            // passed on or retained, or whose release was sent after its lease.
            Ok(Released::NotHeld) if repeats || !may_be_lost => Ok(()),
            Ok(Released::NotHeld) => Err(own.ended_by_clock(now).unwrap_or(LostCause::Removed)),
            Ok(Released::Done) => Ok(()),
            Err(failure) => {
                own.count.failed(failure.maybe_executed, now, spread);
                if count == 0 && !repeats && !failure.maybe_executed {
                    own.count.release = Release::Unsent;
                }
                if !failure.transient && own.count.waiting.is_empty() {
                    own.count.stop(now);
                } else if !failure.transient {
                    give_up(&own.count.waiting, cx);
                }
                self.count_ended(owner, Ok(()), cx);
                return None;
            }
        };
        // The server executed requests in doubt before this one.
        own.requests.all_replied();
        let is_shared = own.mode == LockMode::Shared && count > 0;
        let entries = if is_shared { count } else { own.entries() };
        own.count.confirmed(count, entries);
        if count == 0 {
            own.count.release = Release::Confirmed;
            if let Err(cause) = outcome
                && let Some(hold) = own.hold().filter(|_| own.lost.is_none())
            {
                let loss = own.loss(&key, hold, cause);
                own.lost = Some(cause);
                cx.outputs.push(Output::Lost(Box::new(loss)));
            }
        } else if let Err(cause) = outcome {
            self.lose(owner, cause, cx);
        }
        self.count_ended(owner, outcome, cx);
        let counts = cx.settings.counts_entries;
        let own = self.find(owner);
        let is_right = own.is_none_or(|own| own.wanted_count(counts).is_none());
        is_right.then_some(outcome)
    }

    /// Wakes the calls that wait for a change of the count. If the count is right, those that leave have their outcome.
    pub(super) fn count_ended(
        &mut self,
        owner: Owner,
        outcome: Result<(), LostCause>,
        cx: &mut Context,
    ) {
        let counts = cx.settings.counts_entries;
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        let is_right = own.wanted_count(counts).is_none();
        for call in std::mem::take(&mut own.count.waiting) {
            cx.wake(call);
            if let Some(leaving) = cx.calls.get_mut(&call).and_then(Call::leaving) {
                if is_right {
                    leaving.outcome = Some(outcome.and(leaving.held));
                } else {
                    own.count.waiting.push(call);
                }
            }
        }
    }
}

/// Makes the calls that leave give up now.
fn give_up(calls: &[CallId], cx: &mut Context) {
    let now = cx.now;
    for call in calls {
        if let Some(leaving) = cx.calls.get_mut(call).and_then(Call::leaving) {
            leaving.give_up = now;
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
        own.count.waits_no_more(id);
        if life == Life::Ended {
            Step::Left(Err(LostCause::Closed))
        } else if now >= leaving.give_up {
            Step::Refused(Refusal::Failed)
        } else {
            own.count.waiting.push(id);
            self.cx.wait(leaving.give_up)
        }
    }
}
