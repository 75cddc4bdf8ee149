//! What a notification about a lock changes: granted, wanted, changed, or revoked by another client.

use smallvec::SmallVec;

use super::{
    Common, Machine, Owner, Touched,
    call::{Calls, acquisition},
    input::Event,
    output::Output,
    ownership::{Ownership, Phase},
    slot::Slot,
};
use crate::{few::one, key::Key, mode::LockMode, store::GRACE};

impl Machine {
    /// Applies what happened to the lock of one owner, or of all owners of this client.
    pub(super) fn event(&mut self, key: &Key, owner: Option<Owner>, event: Event) -> Touched {
        if let (Some(owner), Event::Granted { mode, .. } | Event::Retry { mode, .. }) =
            (owner, event)
            && self.own(key, owner).is_none()
        {
            let id = self.slots.slot_of(key);
            self.slots[id].decline(owner, mode, &self.cx);
            return one(id);
        }
        let Some(id) = self.slots.find(key) else {
            return Touched::new();
        };
        let slot = &mut self.slots[id];
        let owners = slot.ownerships.iter().map(|own| own.owner);
        let meant = owners.filter(|own| owner.is_none_or(|owner| owner == *own));
        for owner in meant.collect::<SmallVec<[Owner; 1]>>() {
            slot.on(owner, event, &mut self.calls, &mut self.cx);
        }
        one(id)
    }
}

impl Slot {
    /// Applies what happened to the lock of this owner.
    pub(super) fn on(&mut self, owner: Owner, event: Event, calls: &mut Calls, cx: &mut Common) {
        let now = cx.now;
        let is_current = self.current().is_some_and(|own| own.owner == owner);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if matches!(event, Event::Granted { .. } | Event::Retry { .. }) {
            own.release_again(now);
        }
        match event {
            Event::Granted {
                fence, ttl, wanted, ..
            } => {
                if own.handed_off(fence, ttl, wanted, now) {
                    self.line.arrives(wanted, cx);
                    self.wake_for_grant(calls, cx);
                }
            }
            Event::Wanted => self.line.others_wait |= is_current,
            // Another client tries to acquire a lock that this one shares with others.
            Event::Retry { after, .. } if own.phase() == Phase::Retained => {
                own.end_retention(now + after);
            }
            Event::Retry { after, .. } => {
                own.ask_by(now + after);
                self.wake_turn(cx);
            }
            Event::Changed => {
                own.changed(now);
                self.wake_turn(cx);
            }
            Event::Missed { is_heard } => {
                own.missed(is_heard, now);
                self.wake_turn(cx);
            }
            Event::Extend { token, lease } => self.extend_hold(owner, token, lease, cx),
            Event::Revoke { token, at_once } => {
                let revoked = self.revoke(owner, token, at_once, cx);
                cx.outputs.push(Output::Revoked(revoked));
            }
        }
    }

    /// Wakes the call with the turn, to which the store has just handed the lock off. Unless it is polled within the
    /// grace period, others may have the turn.
    fn wake_for_grant(&self, calls: &mut Calls, cx: &mut Common) {
        let turn = self.line.turn();
        if let Some(call) = turn.and_then(|turn| acquisition(calls, turn))
            && !call.is_asking()
        {
            call.patience.shorten(cx.now);
        }
        self.wake_turn(cx);
    }

    /// Releases an owner that the machine has forgotten, because the store has granted it a lock or still has it in the wait
    /// queue. So other waiters wait neither for the end of the grant nor behind this owner.
    pub(super) fn decline(&mut self, owner: Owner, mode: LockMode, cx: &Common) {
        let mut own = Ownership::new(owner, mode, GRACE, cx.settings.tokens);
        own.end(cx.now);
        self.ownerships.push(own);
    }
}
