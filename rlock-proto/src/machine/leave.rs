//! Applies what a call does with its entry: ends it, extends its lease, downgrades its hold to a shared one, keeps it by a guard, or
//! detaches its lock.

use std::time::Duration;

use super::{
    CallId, Common, Entry, Life, Owner,
    output::{HoldEnd, Output, Refusal, Step},
    ownership::{Ownership, Phase},
    slot::Slot,
};
use crate::{few::one, lease::Time, lost::LostCause, mode::LockMode};

impl Slot {
    /// Removes an entry. Returns the next step of its call.
    pub(super) fn leave(
        &mut self,
        entry: &Entry,
        end: HoldEnd,
        call: Option<CallId>,
        cx: &mut Common,
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
        let Some(own) = self.find_mut(owner) else {
            return Step::Left(held);
        };
        let has_succeeded = end == HoldEnd::Released && broken.is_none();
        let ended = (own.hold_mut()).and_then(|hold| hold.remove(entry.number, has_succeeded));
        if let Some(first) = ended.filter(|_| matches!(own.phase(), Phase::Held | Phase::Lost)) {
            cx.ended(own, first, end);
        }
        match own.phase() {
            Phase::Held if own.entries() > 0 => own.entries_change(now),
            Phase::Held => {
                self.line.decided_at = Some(now);
                self.end_hold(owner, may_continue, cx);
            }
            Phase::Lost if own.entries() == 0 => {
                own.end(now);
                return Step::Left(held);
            }
            _ => return Step::Left(held),
        }
        let (id, key) = (self.id, self.key.clone());
        let own = self.find_mut(owner).filter(|own| own.is_releasing());
        let call = call.filter(|_| cx.life != Life::Ended);
        let (Some(own), Some(call)) = (own, call) else {
            return Step::Left(held);
        };
        // The result of the body waits for one response time-out. The background tries again then.
        let patience = cx.settings.response_timeout;
        own.release_until(now + patience);
        let by = Some((call, now + patience));
        let request = own.release(id, key, patience, by, cx);
        request.map_or(Step::Left(held), Step::Send)
    }

    /// Sets the lease of an entry's hold, from now on.
    pub(super) fn extend(&mut self, entry: &Entry, lease: Duration, cx: &Common) -> Step {
        let (slot, key, now) = (self.id, self.key.clone(), cx.now);
        match self.valid(entry, now) {
            Ok(own) => Step::Renew(Box::new(own.extend(slot, key, lease, &cx.settings, now))),
            Err(why) => Step::Refused(why),
        }
    }

    /// Sets the lease of the hold with this token, from now on, unless its lease is longer.
    pub(super) fn extend_hold(
        &mut self,
        owner: Owner,
        token: u64,
        lease: Duration,
        cx: &mut Common,
    ) {
        let (slot, key, now) = (self.id, self.key.clone(), cx.now);
        let own = self.find_mut(owner);
        if let Some(own) = own.filter(|own| own.is_live(token) && own.valid_until(now).is_ok()) {
            let renew = own.extend(slot, key, lease.max(own.lease()), &cx.settings, now);
            cx.outputs.push(Output::Renew(Box::new(renew)));
        }
    }

    /// Ends the hold of an entry, which is the only one of an exclusive lock, and leaves the lock to its lease.
    pub(super) fn detach(&mut self, entry: &Entry, cx: &mut Common) -> Step {
        let now = cx.now;
        let own = match self.valid(entry, now) {
            Ok(own) => own,
            Err(why) => return Step::Refused(why),
        };
        match own.used() {
            LockMode::Exclusive if own.entries() == 1 => {}
            LockMode::Exclusive => return Step::Refused(Refusal::Nested(own.entries() - 1)),
            mode => return Step::Refused(Refusal::Upgrade(entry.key.clone(), mode)),
        }
        let first = own
            .hold_mut()
            .and_then(|hold| hold.remove(entry.number, false));
        let token = own.detach(now);
        cx.ended(own, first.unwrap_or(entry.number), HoldEnd::Detached);
        (self.current, self.line.others_wait) = (None, false);
        self.line.decided_at = Some(now);
        Step::Detached { token }
    }

    /// Makes the exclusive lock of an entry a shared one, and lets those join who wait for that.
    pub(super) fn downgrade(&mut self, entry: &Entry, cx: &mut Common) -> Step {
        let now = cx.now;
        let own = match self.valid(entry, now) {
            Ok(own) => own,
            Err(why) => return Step::Refused(why),
        };
        let others = own.entries() - 1;
        if own.used() == LockMode::Exclusive && others > 0 {
            return Step::Refused(Refusal::Nested(others));
        }
        if own.mode == LockMode::Exclusive {
            own.downgrade(now);
        }
        Step::Downgraded
    }

    /// Adds an entry to the hold of this one.
    pub(super) fn keep(&mut self, entry: &Entry, now: Time) -> Step {
        let own = match self.valid(entry, now) {
            Ok(own) => own,
            Err(why) => return Step::Refused(why),
        };
        let mode = own.mode;
        own.entries_change(now);
        let kept = own.hold_mut().and_then(|hold| {
            let number = hold.keep(entry.number)?;
            let entry = Entry {
                number,
                ..entry.clone()
            };
            Some(hold.entered(entry, mode, None))
        });
        let kept = kept.map(|kept| Step::Entered(one(kept)));
        kept.unwrap_or_else(|| Step::Refused(entry.over()))
    }

    /// Returns the ownership of an entry, unless the entry has left or its hold is no longer valid.
    fn valid(&mut self, entry: &Entry, now: Time) -> Result<&mut Ownership, Refusal> {
        let own = self.find_mut(entry.owner);
        let own = own.filter(|own| own.has(entry.number));
        let own = own.ok_or_else(|| entry.over())?;
        let valid = own.valid_until(now);
        valid.map_err(|cause| Refusal::Lost(entry.key.clone(), cause))?;
        Ok(own)
    }
}

impl Entry {
    /// Returns the refusal of something that the entry is needed for.
    pub(super) fn over(&self) -> Refusal {
        Refusal::Lost(self.key.clone(), LostCause::Released)
    }
}
