//! How long a call that is not polled keeps what it has: the turn with the lock, or an entry in a shared ownership.

use std::time::Duration;

use super::{
    CallId, Context, Owner,
    call::{Call, Stage},
    input::Event,
    output::{HoldEnd, Output, Renew},
    slot::Slot,
};
use crate::{
    lease::Time,
    mode::Mode,
    store::{GRACE, RenewalOutcome},
};

impl Slot {
    /// Returns whether others wait while the call with the turn has the lock, or may have it: local calls, or other clients.
    fn is_turn_wanted(&self, cx: &Context) -> bool {
        let has_grant = (self.current()).is_some_and(|own| own.requests.grant().is_some());
        let is_asking = || {
            let turn = self.turn.and_then(|turn| cx.calls.get(&turn));
            turn.is_some_and(|call| call.replied_by().is_some())
        };
        !self.queue.is_empty() || self.wanted && (has_grant || is_asking())
    }

    /// Makes the schedule look at the call with the turn, if others wait.
    pub(super) fn watch_turn(&self, cx: &mut Context) {
        if let Some(id) = self.turn.filter(|_| self.is_turn_wanted(cx))
            && let Some(call) = cx.calls.get(&id)
        {
            let replied_by = call.replied_by().filter(|_| !cx.settings.needs_majority);
            let at = call.acts_by().min(replied_by.unwrap_or(Time::NEVER));
            cx.look_at_call(id, at);
        }
    }

    /// Returns how long the call with the turn may still take to use the lock, if it has the lock and has not been polled for
    /// a while.
    pub(super) fn unpolled(&self, cx: &Context, now: Time) -> Option<Duration> {
        let own = self.current()?;
        own.requests.grant()?;
        let left = cx.calls.get(&self.turn?)?.acts_by().since(now);
        (left < GRACE / 2).then_some(left)
    }

    /// Looks at a call whose deadline may have passed: takes its entry or its turn back if it is not polled.
    pub(super) fn look_at(&mut self, id: CallId, cx: &mut Context) {
        let now = cx.now;
        let call = cx.calls.get_mut(&id).and_then(Call::acquisition);
        let Some(call) = call else { return };
        if let Stage::Joined(_) = call.stage {
            let acts_by = call.acts_by;
            match call.take_entry_back(now) {
                Some(entry) => _ = self.leave(&entry, HoldEnd::Cancelled, None, cx),
                None => cx.look_at_call(id, acts_by),
            }
        } else if self.turn == Some(id) && self.is_turn_wanted(cx) {
            self.look_at_turn(cx);
        }
    }

    /// Takes the turn back from its call if the call is not polled. While a request of the call is under way, its reply may have
    /// arrived without being read. So a grace period after the request, the client asks the store a question: if the store
    /// replies to that, it has also replied to the request.
    pub(super) fn look_at_turn(&mut self, cx: &mut Context) {
        let now = cx.now;
        let Some((id, call)) = self.turn.and_then(|id| Some((id, cx.calls.get_mut(&id)?))) else {
            return;
        };
        let is_overdue = call.replied_by().is_some_and(|at| now >= at);
        if now >= call.acts_by() {
            self.recall_turn(id, cx);
        } else if let Some(call) = call.acquisition().filter(|_| is_overdue)
            && !cx.settings.needs_majority
        {
            call.asked_at = now;
            let (lease, owner) = (call.terms.lease, cx.number());
            self.question = Some(owner);
            cx.outputs.push(Output::Renew(Box::new(Renew {
                fence: 0,
                key: self.key.clone(),
                owner,
                mode: Mode::Exclusive,
                lease: Duration::ZERO,
                confirmed: lease,
                left: cx.settings.response_timeout,
                last_fence: 0,
                keeps_fence: false,
                count: 1,
            })));
        }
    }

    /// Takes the turn back if this is the reply to a question that was sent after the request of the call with the turn.
    pub(super) fn answered(&mut self, owner: Option<Owner>, event: &Event, cx: &mut Context) {
        let Event::Renewed {
            sent_at, outcome, ..
        } = event
        else {
            return;
        };
        let is_answer = owner.is_some() && owner == self.question;
        let turn = self.turn.and_then(|turn| cx.calls.get_mut(&turn));
        if is_answer
            && *outcome == Some(RenewalOutcome::Lost)
            && let Some(call) = turn.and_then(Call::acquisition)
            && matches!(call.stage, Stage::Asking(_))
            && call.asked_at <= *sent_at
        {
            call.acts_by = cx.now;
            if self.is_turn_wanted(cx) {
                self.look_at_turn(cx);
            }
        }
        self.question.take_if(|_| is_answer);
    }

    fn recall_turn(&mut self, call: CallId, cx: &mut Context) {
        if let Some(call) = cx.calls.get_mut(&call) {
            call.lose_turn(&self.key);
        }
        self.end_current(cx);
        self.pass_turn(cx);
    }
}
