//! How long a call that is not polled keeps what it has: the turn with the lock, or an entry in a shared ownership.

use std::time::Duration;

use super::{
    CallId, Context, IDLE, Machine,
    call::{Call, Stage},
    output::HoldEnd,
    slot::Slot,
};
use crate::{lease::Time, store::GRACE};

impl Machine {
    /// Notes that the task of a call was woken while this request is under way, or was polled since without a reply. Only the
    /// call reads its reply, so it has a grace period to be polled.
    pub(super) fn woken(&mut self, id: CallId, request: u64, is_polled: bool) {
        let (now, cx) = (self.cx.now, &mut self.cx);
        let patience = cx.settings.response_timeout + IDLE;
        let call = cx.calls.get_mut(&id);
        let Some(call) = call.and_then(|call| call.asking(request)) else {
            return;
        };
        if is_polled {
            (call.acts_by, call.is_reminded) = (now + patience, false);
            return;
        }
        call.acts_by = call.acts_by.min(now + GRACE);
        let acts_by = call.acts_by;
        let keys = cx.calls.get(&id).map(Call::keys).unwrap_or_default();
        let mut slots = keys.iter().filter_map(|key| self.slots.get(key));
        if cx.is_draining() {
            cx.look_whether_polled(id);
        } else if slots.any(|slot| slot.turn == Some(id) && slot.is_turn_wanted(cx)) {
            cx.look_at_call(id, acts_by);
        }
    }
}

impl Slot {
    /// Returns whether others wait while the call with the turn has the lock, or may have it: local calls, or other clients.
    fn is_turn_wanted(&self, cx: &Context) -> bool {
        let has_grant = (self.current()).is_some_and(|own| own.standing.grant().is_some());
        let is_asking = || {
            let turn = self.turn.and_then(|turn| cx.calls.get(&turn));
            turn.is_some_and(Call::is_asking)
        };
        !self.queue.is_empty() || self.wanted && (has_grant || is_asking())
    }

    /// Makes the schedule look at the call with the turn, if others wait.
    pub(super) fn watch_turn(&self, cx: &mut Context) {
        if let Some(id) = self.turn.filter(|_| self.is_turn_wanted(cx))
            && let Some(call) = cx.calls.get(&id)
        {
            // A time in the past would look as if the process had stood still.
            let at = call.acts_by().max(cx.now);
            cx.look_at_call(id, at);
        }
    }

    /// Returns how long the call with the turn may still take to use the lock, if it has the lock and has not been polled for
    /// a while.
    pub(super) fn unpolled(&self, cx: &Context, now: Time) -> Option<Duration> {
        let own = self.current()?;
        own.standing.grant()?;
        let left = cx.calls.get(&self.turn?)?.acts_by().since(now);
        (left < GRACE / 2).then_some(left)
    }

    /// Looks at a call whose deadline may have passed: takes its entry or its turn back if it is not polled.
    pub(super) fn look_at(&mut self, id: CallId, cx: &mut Context) {
        let now = cx.now;
        let call = cx.calls.get_mut(&id).and_then(Call::acquisition);
        let Some(call) = call else { return };
        if let Stage::Joined(at) = call.stage {
            let acts_by = call.acts_by;
            if call.locks[at].key != self.key {
                // Another slot has the entry.
            } else if let Some(entry) = call.take_entry_back(now) {
                self.leave(&entry, HoldEnd::Cancelled, None, cx);
            } else {
                cx.look_at_call(id, acts_by);
            }
        } else if self.turn == Some(id) && self.is_turn_wanted(cx) {
            self.look_at_turn(cx);
        }
    }

    /// Takes the turn back from its call if the call is not polled.
    pub(super) fn look_at_turn(&mut self, cx: &mut Context) {
        let turn = self.turn.and_then(|id| Some((id, cx.calls.get(&id)?)));
        if let Some((id, call)) = turn
            && cx.now >= call.acts_by()
        {
            self.recall_turn(id, cx);
        }
    }

    fn recall_turn(&mut self, call: CallId, cx: &mut Context) {
        if let Some(call) = cx.calls.get_mut(&call) {
            call.lose_turn(&self.key);
        }
        self.end_current(cx);
        self.pass_turn(cx);
    }
}
