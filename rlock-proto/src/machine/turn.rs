//! Who is next for a key: a call of this client gets the turn, joins a shared hold, waits, or is refused.
//!
//! [`Slot::advance`] serves the calls of the line in their order. A call may get the turn at once if it finds the line empty, or if it lacks
//! several locks and a younger call was offered the turn. A call leaves the line when its wait ends.

use super::{
    CallId, Common,
    call::{Calls, Stage, acquisition},
    line::Waiter,
    ownership::{Ownership, Phase},
    slot::Slot,
    timer::Timer,
};
use crate::{lease::Time, mode::LockMode, options::LockOptions};

/// What a call that wants to use a key does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has the turn.
    Has,
    /// It joins the shared ownership.
    Joins,
    /// It waits for its turn.
    Waits,
    /// It waits for its turn even if it asks only once, because it will soon be known who has the lock.
    WaitsForDecision,
}

impl Slot {
    /// Gives a call with these options the turn if the line is empty and the lock is free for it, or if the call `lacks_others` and
    /// is older than the one that is offered the turn. Otherwise, returns whether it joins the shared ownership or waits. A call that
    /// lacks other locks does not join, because it would block other calls of a free lock.
    pub(super) fn take_turn(
        &mut self,
        call: CallId,
        options: &LockOptions,
        lacks_others: bool,
        cx: &mut Common,
    ) -> Turn {
        let now = cx.now;
        if self.line.has_turn(call) {
            self.line.set_turn(call);
            return Turn::Has;
        }
        if lacks_others && self.line.take_offered_turn(call) {
            return Turn::Has;
        }
        if self.line.turn().is_none() && !self.line.is_queued() {
            match self.current() {
                Some(own) if own.phase() == Phase::Held => {
                    if !lacks_others && !self.line.others_wait && own.may_join(options, now) {
                        return Turn::Joins;
                    }
                    let is_vain = options.wait.is_none() && own.excludes(options.mode, now);
                    if self.is_shared_on_store() && !is_vain {
                        self.set_shared_aside();
                    }
                }
                Some(own) if own.phase() == Phase::Retained => self.resume(options, cx),
                _ => {}
            }
            if self.is_open() {
                self.line.set_turn(call);
                return Turn::Has;
            }
        }
        if self.is_decided_soon(now) {
            Turn::WaitsForDecision
        } else {
            Turn::Waits
        }
    }

    /// Returns whether the next call may have the turn: no hold uses the lock, and no retention keeps it.
    fn is_open(&self) -> bool {
        let phase = self.current().map(Ownership::phase);
        phase.is_none_or(Phase::is_pending)
    }

    /// Returns whether it will soon be known who has the lock: the call with the turn is asking, or it has to ask by this time and
    /// otherwise loses the turn, or tokens for the retained lock are on their way.
    fn is_decided_soon(&self, now: Time) -> bool {
        match self.current() {
            Some(own) if own.phase() == Phase::Retained => own.tokens().is_coming(),
            Some(own) => {
                let asks_by = own.standing().ask_at();
                self.line.turn().is_some() && asks_by.is_none_or(|at| at <= now)
            }
            None => self.line.turn().is_some(),
        }
    }

    /// Returns whether a call whose wait has ended stays in the line until it is known who has the lock. A call that has waited
    /// leaves once the store has granted the exclusive lock to the call with the turn, or may have. One that asks only once stays,
    /// because the call with the turn may still not use the lock.
    pub(super) fn waits_for_decision(&self, asks_once: bool, now: Time) -> bool {
        let is_granted = self
            .current()
            .is_some_and(|own| own.mode == LockMode::Exclusive && own.standing().may_have_lock());
        self.is_decided_soon(now) && (asks_once || !is_granted)
    }

    /// Returns whether the store was asked, but since this time has said to no request who has the lock, and no hold of this
    /// client has ended.
    pub(super) fn is_unanswered_since(&self, since: Time) -> bool {
        self.line.decided_at.is_none_or(|at| at < since)
            && (self.current()).is_some_and(|own| own.standing().is_unanswered())
    }

    /// Serves the calls of the line in their order, as far as the state of the slot allows:
    ///
    /// - The next call joins a shared hold if it may. If it may not, and the lock is shared on the store, it asks with another
    ///   owner.
    /// - The next call gets the turn unless a hold uses the lock.
    /// - Attempts are refused once a hold uses the lock, or the store has replied that another client does.
    pub(super) fn advance(&mut self, calls: &mut Calls, cx: &mut Common) {
        while self.line.turn().is_none()
            && let Some(next) = self.line.next()
        {
            match self.current() {
                Some(own) if own.phase() == Phase::Held => {
                    let is_vain = next.is_attempt && own.excludes(next.options.mode, cx.now);
                    // Those that waited when the hold began, or was downgraded, come before the other clients.
                    let is_served = !self.line.others_wait
                        || own.hold().is_some_and(|hold| next.since <= hold.open_since);
                    let joins = is_served && own.may_join(&next.options, cx.now);
                    if joins && self.admit(calls, cx) {
                        continue;
                    } else if self.is_shared_on_store() && !is_vain {
                        self.set_shared_aside();
                    } else if !self.refuse_attempts(calls, cx) {
                        return;
                    }
                }
                Some(own) if own.phase() == Phase::Retained => {
                    let options = next.options;
                    self.resume(&options, cx);
                    if !self.is_open() {
                        return;
                    }
                }
                _ => self.pass_turn(calls, cx),
            }
        }
        if self.line.turn().is_some() {
            self.refuse_attempts(calls, cx);
        } else if self.is_open() {
            // No call uses the ownership.
            self.end_current(cx);
        }
    }

    /// Offers the next call the turn, with the current ownership.
    fn pass_turn(&mut self, calls: &mut Calls, cx: &mut Common) {
        if let Some(turn) = self.line.offer_turn() {
            if let Some(call) = acquisition(calls, turn) {
                call.patience.extend(cx.now);
            }
            if let Some(call) = calls.get_mut(&turn).filter(|_| cx.is_draining()) {
                call.look_whether_polled(turn, cx);
            }
            cx.wake(turn);
        }
    }

    /// Lets the first call of the queue join a shared ownership, if it lacks no other lock. Returns whether it has joined.
    fn admit(&mut self, calls: &mut Calls, cx: &mut Common) -> bool {
        let (id, now) = (self.id, cx.now);
        let Some(next) = self.line.next() else {
            return false;
        };
        let (waiter, options) = (next.call, next.options);
        let Some(call) = acquisition(calls, waiter).filter(|call| call.may_join(id)) else {
            return false;
        };
        let Some(own) = self.current_mut() else {
            return false;
        };
        let Some(hold) = own.hold_mut() else {
            return false;
        };
        let number = hold.join(&options, call.runs_body, now);
        hold.pick_up(number, false);
        call.joins(id, own, number, now);
        let ends = call.patience.ends();
        self.line.remove_next();
        self.line.hands_over();
        if let Some(call) = calls.get_mut(&waiter) {
            call.look_by((ends, Timer::Unpolled), waiter, cx);
        }
        cx.wake(waiter);
        true
    }

    /// Refuses the attempts that have nothing left to wait for. Returns whether there were any.
    fn refuse_attempts(&mut self, calls: &mut Calls, cx: &mut Common) -> bool {
        if !self.line.has_attempts() {
            return false;
        }
        let [waits, asks_once] = [false, true].map(|once| self.waits_for_decision(once, cx.now));
        let is_vain = |waiter: &Waiter| {
            if waiter.options.wait.is_none() {
                !asks_once
            } else {
                !waits
            }
        };
        self.refuse(is_vain, calls, cx)
    }

    /// Refuses the attempts in the mode of a request that the store has refused, if they began before it was sent.
    pub(super) fn refuse_alike(
        &mut self,
        mode: LockMode,
        sent_at: Time,
        calls: &mut Calls,
        cx: &mut Common,
    ) {
        let is_alike =
            |waiter: &Waiter| mode.may_stand_for(waiter.options.mode) && waiter.since < sent_at;
        self.refuse(is_alike, calls, cx);
    }

    /// Refuses the attempts for which `is_meant` returns true. Returns whether there were any.
    fn refuse(
        &mut self,
        is_meant: impl Fn(&Waiter) -> bool,
        calls: &mut Calls,
        cx: &mut Common,
    ) -> bool {
        let refused = self.line.take_attempts(is_meant);
        for waiter in &refused {
            if let Some(call) = acquisition(calls, *waiter) {
                call.stage = Stage::Refused(call.taken(call.part_of(self.id), None));
                cx.wake(*waiter);
            }
        }
        !refused.is_empty()
    }

    pub(super) fn wake_turn(&self, cx: &mut Common) {
        if let Some(turn) = self.line.turn() {
            cx.wake(turn);
        }
    }
}
