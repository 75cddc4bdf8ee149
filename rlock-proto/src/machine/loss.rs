//! How an ownership is lost: its time ends, the store no longer has it, another client revokes it, or the client ends.

use smallvec::SmallVec;

use super::{
    Common, Owner,
    output::{HoldEnd, Revoked},
    ownership::Phase,
    slot::Slot,
};
use crate::lost::LostCause;

impl Slot {
    /// Marks an ownership as lost, and lets the next call ask the store. At the end of a `max_hold`, or if another client
    /// revokes the lock, only the hold is lost: it keeps the ownership until it ends.
    pub(super) fn lose(&mut self, owner: Owner, cause: LostCause, cx: &mut Common) {
        let key = self.key.clone();
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        match own.phase() {
            Phase::Asking | Phase::Lost | Phase::Ended => {}
            Phase::HandedOver | Phase::Held | Phase::Retained => {
                cx.outputs.extend(own.lose(&key, cause));
                // Before its next hold, the call with the turn asks with another owner.
                let keeps = own.phase() == Phase::HandedOver
                    || matches!(cause, LostCause::MaxHold | LostCause::Revoked)
                        && own.phase() == Phase::Held
                        && !own.rest(cx.now).is_zero();
                if !keeps {
                    self.drop_lost(owner, cx);
                }
            }
        }
    }

    /// Stops using a lost ownership, and ends it if it has no entries.
    fn drop_lost(&mut self, owner: Owner, cx: &mut Common) {
        if let Some(own) = self.find_mut(owner) {
            own.drop_lost();
            if own.entries() == 0 {
                // Some servers may still have the lock.
                own.end(cx.now);
            }
        }
        if self.current == Some(owner) {
            (self.current, self.line.others_wait) = (None, false);
        }
    }

    /// Marks all ownerships as lost, because the client ends. Those without a body are released, whether or not their
    /// guards still exist.
    pub(super) fn close(&mut self, cx: &mut Common) {
        let owners: SmallVec<[Owner; 1]> = self.ownerships.iter().map(|own| own.owner).collect();
        for owner in owners {
            self.lose(owner, LostCause::Closed, cx);
            let Some(own) = self.find_mut(owner) else {
                continue;
            };
            own.pass_release_on(cx.now);
            if let Some(hold) = own.hold().filter(|hold| !hold.has_body())
                && own.phase() == Phase::Lost
            {
                for first in hold.firsts() {
                    cx.ended(own, first, HoldEnd::Lost);
                }
                own.end(cx.now);
            }
        }
    }

    /// Takes the lock from its owner at once, because another client has taken it at the store.
    pub(super) fn take_away(&mut self, owner: Owner, cx: &mut Common) {
        self.lose(owner, LostCause::Revoked, cx);
        let key = self.key.clone();
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        own.revoked(cx.now);
        match own.phase() {
            Phase::Held | Phase::Retained => self.drop_lost(owner, cx),
            Phase::Asking | Phase::HandedOver => {
                cx.outputs.extend(own.lose(&key, LostCause::Revoked));
                self.wake_turn(cx);
            }
            Phase::Lost | Phase::Ended => {}
        }
    }

    /// Decides how this client reacts when another client revokes the lock.
    fn revocable(&self, owner: Owner, token: Option<u64>, at_once: bool) -> Revoked {
        let Some(own) = self.find(owner) else {
            return Revoked::NotHeld;
        };
        let is_meant = token.map_or(Some(true), |token| own.may_have(token));
        match own.phase() {
            Phase::Lost | Phase::Ended => Revoked::NotHeld,
            // The client does not know the fence yet, so the store compares the token.
            phase if phase.is_pending() && (!at_once || is_meant.is_none()) => Revoked::NotHeld,
            _ if is_meant == Some(false) => Revoked::OtherHold,
            Phase::Retained => Revoked::Retained,
            Phase::Held if own.lost().is_none() => Revoked::Lost,
            Phase::Asking | Phase::HandedOver | Phase::Held => Revoked::Given,
        }
    }

    /// Gives the lock up because another client revokes it, or has taken it `at_once`.
    pub(super) fn revoke(
        &mut self,
        owner: Owner,
        token: Option<u64>,
        at_once: bool,
        cx: &mut Common,
    ) -> Revoked {
        let revoked = self.revocable(owner, token, at_once);
        match revoked {
            Revoked::NotHeld | Revoked::OtherHold => {}
            Revoked::Retained => {
                if let Some(own) = self.find_mut(owner) {
                    own.end_retention(cx.now);
                }
            }
            Revoked::Lost | Revoked::Given if at_once => self.take_away(owner, cx),
            Revoked::Lost | Revoked::Given => {
                self.lose(owner, LostCause::Revoked, cx);
                if let Some(own) = self.find_mut(owner) {
                    own.revoked(cx.now);
                }
            }
        }
        revoked
    }
}
