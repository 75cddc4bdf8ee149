//! What is taken from a call that is not polled: the turn, or an entry in a shared ownership.
//!
//! A future may be dropped late, or never be polled again. So each call says by when it acts next, and if it has not acted by
//! then, the machine takes back what it has, but only if others wait for that or the client drains. A call that waits without a
//! limit has to act only when it has got something.

use std::time::Duration;

use super::{
    CallId, Common, Machine, Refusal,
    call::{Calls, Stage, acquisition},
    output::HoldEnd,
    patience::Patience,
    slot::Slot,
    timer::Timer,
};
use crate::{lease::Time, store::GRACE};

impl Machine {
    /// Gives a call a grace period to be polled, because its task was woken while this request is under way and only the call
    /// reads its reply. If the call was polled since without a reply, it has its whole patience again.
    pub(super) fn woken(&mut self, id: CallId, request: u64, is_polled: bool) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let Some(acquisition) = call.asking(request) else {
            return;
        };
        let now = self.cx.now;
        if is_polled {
            acquisition.patience = Patience::until(now + self.cx.settings.response_timeout);
            return;
        }
        acquisition.patience.shorten(now);
        let ends = acquisition.patience.ends();
        let mut slots = acquisition.parts.iter().map(|part| &self.slots[part.slot]);
        let is_wanted = slots.any(|slot| slot.line.has_turn(id) && slot.blocks_others(true));
        if self.cx.is_draining() {
            call.look_whether_polled(id, &mut self.cx);
        } else if is_wanted {
            call.look_by((ends, Timer::Unpolled), id, &mut self.cx);
        }
    }

    /// Wakes a call whose deadline came at `due`, and reminds it or gives it up if it has not been polled. Its slots decide whether
    /// to take back what it has.
    pub(super) fn look_at_call(&mut self, id: CallId, due: Time) {
        let (now, drains) = (self.cx.now, self.cx.is_draining());
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        call.due = None;
        self.cx.wake(id);
        let Some(acquisition) = call.acquisition() else {
            return;
        };
        let is_late = now.since(due) >= GRACE / 2;
        // If the look is in time, the patience ends just then: the slots take back what the call has, without a reminder.
        let is_unpolled = now > acquisition.patience.ends();
        let mut had_reminder = false;
        if is_unpolled && (drains || is_late) {
            had_reminder = acquisition.patience.remind(now);
        }
        if drains && had_reminder {
            self.refuse_call(id, Refusal::Draining);
        } else if drains {
            call.look_whether_polled(id, &mut self.cx);
        }
    }
}

impl Slot {
    /// Returns whether others wait while the call with the turn has the lock, or may have it: local calls, or other clients.
    pub(super) fn blocks_others(&self, is_asking: bool) -> bool {
        let may_have_lock = (self.current()).is_some_and(|own| own.standing().may_have_lock());
        self.line.is_queued() || self.line.others_wait && (may_have_lock || is_asking)
    }

    /// Makes the schedule look at the call with the turn, if others wait.
    pub(super) fn watch_turn(&self, calls: &mut Calls, cx: &mut Common) {
        if let Some(id) = self.line.turn()
            && let Some(call) = calls.get_mut(&id)
            && self.blocks_others(call.is_asking())
            && let Some(acquisition) = call.acquisition()
        {
            // A time in the past would look as if the process had stood still.
            let at = acquisition.patience.ends().max(cx.now);
            call.look_by((at, Timer::Unpolled), id, cx);
        }
    }

    /// Returns how long the call with the turn may still take to use the lock, if it has the lock and has not been polled for
    /// a while.
    pub(super) fn unpolled(&self, calls: &Calls, now: Time) -> Option<Duration> {
        self.current()
            .filter(|own| own.standing().may_have_lock())?;
        let call = calls.get(&self.line.turn()?)?;
        let rest = call.patience()?.ends().since(now);
        (rest < GRACE / 2).then_some(rest)
    }

    /// Takes back what a call has of this key, if the call has not been polled in time.
    pub(super) fn look_at(&mut self, id: CallId, calls: &mut Calls, cx: &mut Common) {
        let Some(call) = acquisition(calls, id) else {
            return;
        };
        let ends = call.patience.ends();
        let is_over = cx.now >= ends;
        match call.stage {
            Stage::Joined(n) if call.parts[n].slot != self.id => {}
            Stage::Joined(_) if !is_over => {
                if let Some(call) = calls.get_mut(&id) {
                    call.look_by((ends, Timer::Unpolled), id, cx);
                }
            }
            Stage::Joined(n) => {
                // The next poll of the call asks again.
                call.stage = Stage::Ready;
                if let Some(entered) = call.parts[n].entered.take() {
                    self.leave(&entered.entry, HoldEnd::Cancelled, None, cx);
                }
            }
            _ if is_over && self.line.has_turn(id) && self.blocks_others(call.is_asking()) => {
                call.lose_turn(self.id);
                self.end_current(cx);
                self.line.give_back(id);
            }
            _ => {}
        }
    }
}
