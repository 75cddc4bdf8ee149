//! What follows from an input for each key that it touched: retentions end, the line moves on, the background sends, and
//! the next look is scheduled. In debug builds, it checks the invariants of the key.

use super::{
    Common, Life, SlotId,
    call::{Calls, Stage, acquisition},
    ownership::{Ownership, Phase},
    slot::Slot,
    slots::Slots,
    timer::{Target, Timer},
};
use crate::{lease::Time, mode::LockMode};

impl Slots {
    /// Settles a slot, which is forgotten later if it is unused.
    pub(super) fn settle(&mut self, id: SlotId, calls: &mut Calls, cx: &mut Common) {
        let Some(slot) = self.get_mut(id) else {
            return;
        };
        slot.settle(calls, cx);
        if cfg!(debug_assertions) && !slot.is_unused() {
            slot.check(calls, cx);
        }
        self.list(id, cx);
    }
}

impl Slot {
    /// Settles the slot, whatever the input was: ends a retention or a shared ownership that others
    /// wait for, serves the line, sends what the background has to send, and schedules the next look.
    fn settle(&mut self, calls: &mut Calls, cx: &mut Common) {
        self.end_retention(cx);
        self.advance(calls, cx);
        if let Some(own) = self.current()
            && own.phase() == Phase::Held
            && (own.mode.permits().is_some()
                || own.mode == LockMode::Shared && (self.line.others_wait || cx.is_draining()))
        {
            self.set_shared_aside();
        }
        let counts = cx.settings.counts_entries;
        let (mut n, mut due) = (0, (Time::NEVER, Timer::LeaseEnd));
        while let Some(own) = self.ownerships.get(n) {
            let (id, owner) = (self.id, own.owner);
            let mut request_due = own.request_due(counts);
            if request_due <= cx.now && cx.life != Life::Ended {
                if own.is_releasing() {
                    self.release_in_background(owner, calls, cx);
                } else {
                    let key = self.key.clone();
                    self.ownerships[n].send_count(id, key, cx);
                }
                request_due = self.ownerships[n].request_due(counts);
            }
            let own = &self.ownerships[n];
            if own.is_over(cx.now) {
                self.ownerships.remove(n);
                continue;
            }
            due = due.min(own.next_due(cx.now, request_due));
            n += 1;
        }
        (cx.schedule).look_by(due, Target::Slot(self.id), &mut self.due);
        self.watch_turn(calls, cx);
        // The call that has just taken its step is not woken again, unless it waits for a release that has ended since.
        let asks_again = |own: &Ownership| {
            own.phase() == Phase::Asking && self.mode_to_ask(own.mode) != own.mode
        };
        if let Some(turn) = self.line.turn()
            && self.current().is_none_or(asks_again)
            && let Some(call) = acquisition(calls, turn)
            && (Some(turn) != cx.stepped || matches!(call.stage, Stage::Following(_)))
            && call.goes_on_at(self)
        {
            cx.wake(turn);
        }
    }

    /// Ends a retention when others wait for the lock, or no call came in time.
    fn end_retention(&mut self, cx: &mut Common) {
        let Some(own) = self.current() else {
            return;
        };
        let Some(until) = own.retained_until() else {
            return;
        };
        // Without `retain`, it only waited for tokens, and the calls that needed them may be gone.
        let is_kept = cx.now < until && (self.line.is_queued() || !own.retain().is_zero());
        if self.line.others_wait || cx.is_draining() || !is_kept {
            self.end_current(cx);
        }
    }

    /// Panics if the slot is not consistent.
    fn check(&self, calls: &Calls, cx: &Common) {
        let is = |is: bool, what: &str| assert!(is, "{what}: {self:#?}");
        for own in &self.ownerships {
            own.check(cx.now);
            let is_over = matches!(own.phase(), Phase::Lost | Phase::Ended);
            let is_shared = own.phase() == Phase::Held && own.mode != LockMode::Exclusive;
            let is_current = self.current == Some(own.owner);
            is(
                is_over != is_current || is_shared,
                "only the current ownership and shared ones are used",
            );
            is(
                !is_current || !is_shared || !self.line.is_queued(),
                "no call waits behind a shared ownership",
            );
        }
        match self.current().map(Ownership::phase) {
            None => is(self.current.is_none(), "the current ownership is known"),
            Some(Phase::Asking | Phase::HandedOver) => {
                is(self.line.turn().is_some(), "a call has the turn for it");
            }
            Some(Phase::Held) => is(self.line.turn().is_none(), "the hold has the turn"),
            Some(Phase::Retained) => {
                is(self.line.turn().is_none(), "no call has the turn");
                let waits = self.current().is_some_and(|own| !own.tokens().has_next());
                is(!self.line.is_queued() || waits, "a retained lock is free");
            }
            Some(Phase::Lost | Phase::Ended) => is(false, "what is over is not current"),
        }
        let is_used = self.line.turn().is_some() || self.current.is_some();
        is(!self.line.is_queued() || is_used, "waiters are served");
        is(
            self.line.calls().all(|call| calls.contains_key(&call)),
            "calls exist",
        );
    }
}
