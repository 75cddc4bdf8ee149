//! The steps of a call that acquires locks: first it enters the holds that it is inside, then it gets the turns of
//! its other keys, then it asks the store, all locks or none.

use std::time::Duration;

use super::{
    By, CallId, HoldEnd, Machine, Owner, Ownership, Phase,
    call::{Acquisition, Stage, Wanted},
    doubt::{Answer, Asked},
    input::Failure,
    output::{Ask, Entered, Refusal, Request, Step},
    slot::Turn,
};
use crate::{
    few::Few,
    key::Key,
    lease::{Time, valid_until},
    lost::LostCause,
    store::{Acquired, Grant, TakenBy},
};

/// How often a call asks again because a change of its lock was reported. Requests of the same client over another
/// connection are reported, too.
const MOST_CONFIRMATIONS: u8 = 3;

impl Machine {
    /// Returns the next step of a call that is polled.
    pub(super) fn acquire_step(&mut self, id: CallId, call: &mut Acquisition) -> Step {
        loop {
            let now = self.cx.now;
            if self.cx.is_closed() {
                return self.refuse(id, call, Refusal::Closed);
            }
            match &call.stage {
                Stage::Asking(_) => return self.cx.wait(Time::NEVER),
                Stage::Pausing(until, _) if now < *until => return self.cx.wait(*until),
                Stage::Refused(why) => {
                    let why = why.clone();
                    return self.refuse(id, call, why);
                }
                Stage::Pausing(_, otherwise)
                    if *otherwise != Refusal::Split && call.is_over(now) =>
                {
                    // Gives up before the deadline only if requests failed, and otherwise waits until then.
                    if *otherwise != Refusal::Failed && now < call.deadline {
                        return self.cx.wait(call.deadline);
                    }
                    call.stage = Stage::Refused(otherwise.clone());
                    continue;
                }
                Stage::Waiting(at) => {
                    let at = *at;
                    if let Some(step) = self.wait_step(id, call, at) {
                        return step;
                    }
                }
                Stage::Queued(at) => {
                    let (at, limit) = (*at, call.limit(&self.cx));
                    let lock = &call.locks[at];
                    let slot = self.slots.get_mut(&lock.key);
                    if let Some(slot) = slot.filter(|slot| slot.turn != Some(id)) {
                        if now < call.deadline {
                            return self.cx.wait(call.deadline);
                        }
                        if now < limit && slot.may_attend(lock.mode, &self.cx) {
                            slot.attend(id);
                            return self.cx.wait(limit);
                        }
                        call.stage = Stage::Refused(call.taken(at, None));
                        continue;
                    }
                }
                Stage::Joined(at) => {
                    let at = *at;
                    self.pick_up(call, at);
                }
                Stage::Ready | Stage::Pausing(..) => {}
            }
            call.stage = Stage::Ready;
            let is_inside = |lock: &Wanted| lock.inside.is_some() && lock.entered.is_none();
            match call.locks.iter().position(is_inside) {
                Some(at) => self.enter(call, at),
                None => {
                    if let Some(step) = self.ready_step(id, call) {
                        return step;
                    }
                }
            }
        }
    }

    /// Enters the hold that the lock at this index is inside, unless that has ended. No request is needed: the hold is live, and its
    /// lease lasts. The store learns of the entry soon.
    fn enter(&mut self, call: &mut Acquisition, at: usize) {
        let now = self.cx.now;
        let lock = &mut call.locks[at];
        let slot = self.slots.get_mut(&lock.key);
        let own = lock.inside.zip(slot).and_then(|(inside, slot)| {
            let own = slot.find_mut(inside.owner)?;
            own.is_live(inside.token).then_some((inside, own))
        });
        let Some((inside, own)) = own else {
            lock.inside = None;
            return;
        };
        if let Err(cause) = own.valid_until(now) {
            let key = lock.key.clone();
            call.stage = Stage::Refused(Refusal::Lost(key.clone(), cause));
            self.lose(&key, inside.owner, cause);
        } else if !lock.mode.fits_inside(own.used()) {
            call.stage = Stage::Refused(Refusal::Upgrade(lock.key.clone(), own.used()));
        } else if let Some(hold) = own.hold_mut() {
            let number = hold.add(&call.terms, Some(inside.entry), now);
            own.entries_change(now);
            lock.enters(own, number, None);
        }
    }

    /// Gets the turns, and then asks the store. `None` goes on.
    fn ready_step(&mut self, id: CallId, call: &mut Acquisition) -> Option<Step> {
        let now = self.cx.now;
        let mut fresh = call.fresh();
        let turn = |at: &usize| (*at, self.turn(id, call, *at));
        let turn = fresh.iter().map(turn).find(|(_, turn)| *turn != Turn::Has);
        if let Some((at, Turn::Joins)) = turn {
            let lock = &mut call.locks[at];
            let own = self.slots.get_mut(&lock.key)?.current_mut()?;
            let number = own.hold_mut()?.join(&call.terms, now);
            lock.enters(own, number, Some(By::Local));
            fresh.clear();
        } else if let Some((at, _)) = turn {
            // While a call waits for one turn it keeps no other: that would block other calls of a free lock.
            if call.locks.len() > 1 {
                self.give_turns_back(id, call, None);
            }
            let (lock, limit) = (&call.locks[at], call.limit(&self.cx));
            let slot = self.slots.get_mut(&lock.key)?;
            if call.asks_once() {
                if now < limit && slot.may_attend(lock.mode, &self.cx) {
                    slot.attend(id);
                    return Some(self.cx.wait(limit));
                }
                call.stage = Stage::Refused(call.taken(at, None));
                return None;
            }
            slot.enqueue(id);
            call.contended = Some((at, None));
            call.stage = Stage::Queued(at);
            return None;
        }
        let slot = |at: &usize| self.slots.get(&call.locks[*at].key);
        let follows = |at: &usize| {
            slot(at).is_some_and(|slot| slot.current().is_none() && slot.is_releasing())
        };
        let patience = self.cx.settings.response_timeout / 2;
        let limit = call.started + patience;
        if call.is_shorter(patience) && now < limit && fresh.iter().any(follows) {
            // The request would overtake the release. A call that waits for longer is queued at the store then.
            return Some(self.cx.wait(limit));
        }
        for at in &fresh {
            let lock = &mut call.locks[*at];
            let slot = self.slots.get_mut(&lock.key)?;
            let own = slot.ownership(call.terms.lease, lock.mode, &mut self.cx);
            // Without a watchdog, a grant for a short time is not renewed.
            let is_usable = |grant: &Grant| {
                let is_long_enough = call.terms.watchdog || grant.ttl >= call.terms.lease;
                is_long_enough && grant.is_fresh(call.terms.lease, now)
            };
            let grant = own.grant().filter(is_usable);
            // The reply to the latest request is usable while it is valid.
            let present = own.standing.grant();
            lock.grant = grant.or(lock.grant.filter(|grant| present == Some(*grant)));
        }
        if fresh.iter().all(|at| call.locks[*at].grant.is_some()) {
            return self.begin(call, &fresh).map(Step::Entered);
        }
        // The grant that an earlier call asked for may arrive.
        if let [at] = *fresh
            && let Some(step) = self.wait_step(id, call, at)
        {
            return Some(step);
        }
        let waits = |at: &&usize| {
            let own = self.current(&call.locks[**at].key);
            own.is_some_and(|own| own.standing.ask_at().is_some())
        };
        let waiting = || fresh.iter().find(waits).map(|at| (*at, None));
        if !call.asks_once()
            && now >= call.deadline
            && let Some((at, ttl)) = call.contended.or_else(waiting)
        {
            call.stage = Stage::Refused(call.taken(at, ttl));
            return None;
        }
        Some(Step::Send(self.ask(id, call, &fresh)?))
    }

    fn turn(&mut self, id: CallId, call: &Acquisition, at: usize) -> Turn {
        let lock = &call.locks[at];
        // A call that waits for several locks keeps none: that would block other calls of a free lock.
        let may_join = call.fresh().len() == 1;
        let (slot, cx) = self.slot_mut(&lock.key);
        slot.take_turn(id, (&call.terms, lock.mode, may_join), cx)
    }

    /// Begins the renewals of an entry in a shared ownership. If that was lost since, the call gives the entry back.
    fn pick_up(&mut self, call: &mut Acquisition, at: usize) {
        let (lock, now) = (&mut call.locks[at], self.cx.now);
        let Some(entered) = &lock.entered else {
            return;
        };
        let (owner, number) = (entered.entry.owner, entered.entry.number);
        let slot = self.slots.get_mut(&lock.key);
        let own = slot.and_then(|slot| slot.find_mut(owner));
        let own = own.filter(|own| own.valid_until(now).is_ok());
        match own.and_then(Ownership::hold_mut) {
            Some(hold) => hold.pick_up(number, call.terms.watchdog),
            None => self.leave_all(call),
        }
    }

    /// Waits for a report about the lock at this index, whose turn the call has. `None` goes on.
    fn wait_step(&mut self, id: CallId, call: &mut Acquisition, at: usize) -> Option<Step> {
        let now = self.cx.now;
        let key = &call.locks[at].key;
        let slot = self.slots.get(key).filter(|slot| slot.turn == Some(id))?;
        let own = slot
            .current()
            .filter(|own| own.is_usable(call.terms.lease, call.locks[at].mode, now))?;
        let until = own.standing.ask_at()?.min(call.deadline);
        (now < until).then(|| self.cx.wait(until))
    }

    /// Asks the store for those locks that this client does not own yet.
    ///
    /// A lock that the store handed off and no hold has used is requested again with the others. If one of them is
    /// contended, the same request takes it back.
    fn ask(&mut self, id: CallId, call: &mut Acquisition, fresh: &[usize]) -> Option<Box<Request>> {
        let is_owned = |at: &usize| {
            let lock = &call.locks[*at];
            let own = self.current(&lock.key);
            lock.grant.is_some() && own.is_some_and(|own| own.phase() == Phase::HandedOver)
        };
        let asked: Few<usize> = fresh.iter().copied().filter(|at| !is_owned(at)).collect();
        let takes_back = asked.len() > 1 || self.cx.settings.needs_majority;
        let mut claims = Few::new();
        for at in asked {
            let key = call.locks[at].key.clone();
            let own = self.slots.get_mut(&key)?.current_mut()?;
            claims.push(own.claim(key, takes_back, self.cx.now));
        }
        let (lease, waits) = (call.terms.lease, !call.asks_once());
        let timeout = call.request_timeout(&self.cx);
        let what = Ask::Acquire { lease, waits };
        Some(call.sends(id, claims, what, timeout, &mut self.cx))
    }

    /// Begins the holds. Returns `None` if one of the ownerships has no token, or a grant came too late.
    fn begin(&mut self, call: &mut Acquisition, fresh: &[usize]) -> Option<Few<Entered>> {
        let now = self.cx.now;
        let is_late = |at: &usize| {
            let grant = call.locks[*at].grant.as_ref();
            grant.is_none_or(|grant| valid_until(grant.since, grant.ttl) <= now)
        };
        if fresh.iter().any(is_late) {
            call.locks.iter_mut().for_each(|lock| lock.grant = None);
            call.fails(Failure::UNANSWERED, &mut self.cx);
            return None;
        }
        for at in fresh {
            let lock = &mut call.locks[*at];
            let (grant, slot) = (lock.grant.take()?, self.slots.get_mut(&lock.key)?);
            let own = slot.current_mut()?;
            let Some(number) = own.begin((&call.terms, lock.mode), grant, now) else {
                // The call asks with another owner.
                self.leave_all(call);
                return None;
            };
            let by = Some(own.standing.by());
            lock.enters(own, number, by);
            slot.turn = None;
            slot.admit(&mut self.cx);
        }
        let entered = call.locks.iter_mut().filter_map(|lock| lock.entered.take());
        Some(entered.collect())
    }

    /// Leaves all entries of a call.
    fn leave_all(&mut self, call: &mut Acquisition) {
        for lock in &mut call.locks {
            if let Some(entered) = lock.entered.take()
                && let Some(slot) = self.slots.get_mut(&lock.key)
            {
                slot.leave(&entered.entry, HoldEnd::Cancelled, None, &mut self.cx);
            }
        }
    }

    /// Applies the reply to an acquire to its ownerships, and then to the call, if it waits for it.
    pub(super) fn acquired(
        &mut self,
        request: &Request,
        (lease, waits): (Duration, bool),
        reply: Result<Acquired, Failure>,
        is_dropped: bool,
        asking: Option<&mut Acquisition>,
    ) {
        self.replied(request, &reply, is_dropped);
        match reply {
            Ok(Acquired::Granted {
                fences,
                wanted,
                sent_at,
            }) => {
                let grants = fences.iter().map(|fence| Grant {
                    fence: *fence,
                    since: sent_at,
                    ttl: lease,
                    wanted,
                });
                self.all_granted(request, grants.collect(), asking);
            }
            Ok(Acquired::Taken {
                claim,
                ttl,
                queued,
                sent_at,
                fences,
                retired,
                by,
            }) => {
                let refused = &request.claims[claim];
                let is_split = by == TakenBy::NoMajority;
                if !waits
                    && !is_split
                    && let Some(slot) = self.slots.get_mut(&refused.key)
                {
                    slot.refused = Some((refused.mode, sent_at));
                }
                for (n, (claimed, fence)) in request.claims.iter().zip(fences).enumerate() {
                    let timing = (self.cx.now, self.cx.spread());
                    let own = self.own_mut(&claimed.key, claimed.owner);
                    // A later request may have been granted since.
                    let Some(own) = own.filter(|own| own.phase().is_pending()) else {
                        continue;
                    };
                    own.standing.note_fence(fence);
                    if n == claim && waits {
                        own.standing.refused(sent_at, ttl, queued, timing);
                    } else {
                        own.standing.not_granted(sent_at);
                    }
                    // An owner is granted a lock once.
                    self.lose(&claimed.key, claimed.owner, LostCause::Removed);
                }
                if let Some(call) = asking {
                    let at = call.position(&request.claims[claim].key);
                    if is_split && call.is_shorter(self.cx.settings.response_timeout) {
                        call.on_split(call.taken(at, ttl), &mut self.cx);
                    } else {
                        self.on_taken(request.call, call, (at, ttl), retired);
                    }
                }
            }
            Ok(Acquired::Outdated) | Err(_) => {
                let failure = reply.err().unwrap_or(Failure::UNANSWERED);
                if let Some(call) = asking {
                    call.fails(failure, &mut self.cx);
                }
            }
        }
        for claim in &request.claims {
            let now = self.cx.now;
            if let Some(slot) = self.slots.get_mut(&claim.key) {
                slot.wake_turn(&mut self.cx);
                // The turn was taken back, and the release may have been executed before this request.
                if let Some(own) = slot.find_mut(claim.owner) {
                    own.release_again(now);
                }
            }
        }
    }

    /// Notes for its ownerships that an acquire has ended.
    fn replied(&mut self, request: &Request, reply: &Result<Acquired, Failure>, is_dropped: bool) {
        let is_retired = matches!(reply, Ok(Acquired::Taken { retired: true, .. }));
        let answer = match reply {
            Ok(Acquired::Granted { sent_at, .. }) => Answer::Has(*sent_at),
            Ok(Acquired::Taken { .. }) if !is_retired => Answer::HasNot,
            Ok(Acquired::Taken { .. } | Acquired::Outdated) => Answer::Missing,
            Err(failure) => (*failure).into(),
        };
        // Only a quorum's reply tells that its members have taken back what they granted.
        let is_untold = is_dropped && self.cx.settings.needs_majority;
        let takes_back = is_retired || is_untold || request.claims.len() > 1;
        let now = self.cx.now;
        for claim in &request.claims {
            if let Some(own) = self.own_mut(&claim.key, claim.owner) {
                own.doubt
                    .answered(Asked::Acquire { takes_back }, answer, now);
            }
        }
    }

    fn all_granted(
        &mut self,
        request: &Request,
        grants: Few<Grant>,
        call: Option<&mut Acquisition>,
    ) {
        let mut granted = Few::new();
        for (claim, grant) in request.claims.iter().zip(grants) {
            if let Some(slot) = self.slots.get_mut(&claim.key)
                && let Some(own) = slot.find_mut(claim.owner)
            {
                let arrives = claim.arrives && own.phase().is_pending();
                granted.extend(own.granted(grant).map(|grant| (&claim.key, grant)));
                if arrives {
                    slot.arrived(grant.wanted, &self.cx);
                }
            }
        }
        let Some(call) = call else {
            return;
        };
        call.stage = Stage::Ready;
        let is_certain = |at: &usize| {
            let own = self.current(&call.locks[*at].key);
            own.is_some_and(|own| own.grant().is_some())
        };
        // If a change was reported since the request was sent, the lock may have been lost since the grant. A hold that
        // begins nevertheless is renewed at once.
        let may_ask = call.confirmations < MOST_CONFIRMATIONS && self.cx.now < call.limit(&self.cx);
        if may_ask && !call.fresh().iter().all(is_certain) {
            call.confirmations += 1;
            call.locks.iter_mut().for_each(|lock| lock.grant = None);
        } else if granted.len() == request.claims.len() {
            for (key, grant) in granted {
                let at = call.position(key);
                call.locks[at].grant = Some(grant);
            }
        }
    }

    /// Applies the reply that another owner has the lock at this index, for this time.
    fn on_taken(
        &mut self,
        id: Option<CallId>,
        call: &mut Acquisition,
        (at, ttl): (usize, Option<Duration>),
        retired: bool,
    ) {
        let why = call.taken(at, ttl);
        if call.asks_once() {
            call.stage = Stage::Refused(why);
            return;
        }
        call.contended = Some((at, ttl));
        call.stage = Stage::Ready;
        if let Some(id) = id.filter(|_| call.fresh().len() > 1) {
            self.give_turns_back(id, call, Some(at));
            call.stage = Stage::Waiting(at);
        }
        if retired {
            // The next owner asks without a pause.
            call.stage = call.pause(why, call.deadline, &mut self.cx);
        }
    }

    /// Passes on the turns of the call, except for the lock at `kept`: those locks may be free.
    fn give_turns_back(&mut self, id: CallId, call: &Acquisition, kept: Option<usize>) {
        for (at, lock) in call.locks.iter().enumerate() {
            if let Some(slot) = self.slots.get_mut(&lock.key)
                && Some(at) != kept
            {
                slot.give_back(id, &mut self.cx);
            }
        }
    }

    /// Ends a call that gets no lock.
    fn refuse(&mut self, id: CallId, call: &mut Acquisition, why: Refusal) -> Step {
        self.abandon(id, call);
        Step::Refused(why)
    }

    /// Gives up everything that a call has or waits for.
    pub(super) fn abandon(&mut self, id: CallId, call: &mut Acquisition) {
        self.give_turns_back(id, call, None);
        self.leave_all(call);
    }

    /// Returns the current ownership of a key.
    fn current(&self, key: &Key) -> Option<&Ownership> {
        self.slots.get(key)?.current()
    }

    /// Marks an ownership as lost.
    fn lose(&mut self, key: &Key, owner: Owner, cause: LostCause) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.lose(owner, cause, &mut self.cx);
        }
    }
}
