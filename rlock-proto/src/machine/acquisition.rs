//! The steps of a call that acquires locks: first it enters the holds that it is inside, then it gets the turns of
//! its other keys, then it asks the store, all locks or none.

use super::{
    By, CallId, Common, HoldEnd, Ownership, Phase,
    call::{Acquisition, Part, Stage},
    input::Failure,
    output::{Ask, Entered, Refusal, Request, Step},
    slots::Slots,
    turn::Turn,
};
use crate::{
    few::Few,
    lease::{Time, valid_until},
    store::Grant,
};

impl Acquisition {
    /// Returns the next step of a call that is polled.
    pub(super) fn step(&mut self, id: CallId, slots: &mut Slots, cx: &mut Common) -> Step {
        loop {
            let now = cx.now;
            if cx.is_closed() {
                return self.refuse(id, Refusal::Closed, slots, cx);
            }
            match &self.stage {
                Stage::Asking(_) => return cx.wait(Time::NEVER),
                Stage::Pausing(until, _) if now < *until => return cx.wait(*until),
                Stage::Refused(why) => {
                    let why = why.clone();
                    return self.refuse(id, why, slots, cx);
                }
                Stage::Pausing(_, otherwise)
                    if *otherwise != Refusal::Split && self.is_over(now)
                        || now >= self.limit(cx) =>
                {
                    // Gives up before the deadline only if requests failed, and otherwise waits until then.
                    if *otherwise != Refusal::Failed && now < self.deadline {
                        return cx.wait(self.deadline);
                    }
                    self.stage = Stage::Refused(otherwise.clone());
                    continue;
                }
                Stage::Waiting { index, keeps_until } => {
                    let (index, mut keeps_until) = (*index, *keeps_until);
                    if now >= keeps_until {
                        keeps_until = Time::NEVER;
                        self.stage = Stage::Waiting { index, keeps_until };
                        let waited_for = self.parts[index].slot;
                        self.give_turns_back(id, |part| part.slot == waited_for, slots);
                    }
                    if let Some(step) = self.wait_step(id, index, keeps_until, slots, cx) {
                        return step;
                    }
                }
                Stage::Queued(n) => {
                    let (n, limit) = (*n, self.limit(cx));
                    let slot = &mut slots[self.parts[n].slot];
                    if !slot.line.has_turn(id) {
                        if now < self.deadline {
                            return cx.wait(self.deadline);
                        }
                        let is_undecided = slot.waits_for_decision(self.asks_once(), now);
                        if is_undecided && now < limit {
                            slot.line.attempt(id);
                            return cx.wait(limit);
                        }
                        // The store was asked, and has not said within a response time-out who has the lock.
                        let has_failed = is_undecided
                            && self.contended.is_none()
                            && slot.is_unanswered_since(self.started);
                        self.stage = Stage::Refused(if has_failed {
                            Refusal::Failed
                        } else {
                            self.taken(n, None)
                        });
                        continue;
                    }
                }
                Stage::Joined(n) => self.pick_up(*n, slots, cx),
                Stage::Ready | Stage::Following(_) | Stage::Pausing(..) => {}
            }
            self.stage = Stage::Ready;
            let is_inside = |part: &Part| part.inside.is_some() && part.entered.is_none();
            match self.parts.iter().position(is_inside) {
                Some(n) => self.enter(n, slots, cx),
                None => {
                    if let Some(step) = self.ready_step(id, slots, cx) {
                        return step;
                    }
                }
            }
        }
    }

    /// Enters the hold that the lock at this index is inside, unless that has ended. No request is needed: the hold is live, and
    /// its lease lasts. The store learns of the entry soon.
    fn enter(&mut self, n: usize, slots: &mut Slots, cx: &mut Common) {
        let now = cx.now;
        let part = &mut self.parts[n];
        let slot = &mut slots[part.slot];
        let own = part.inside.and_then(|inside| {
            let own = slot.find_mut(inside.owner)?;
            own.is_live(inside.token).then_some((inside, own))
        });
        let Some((inside, own)) = own else {
            part.inside = None;
            return;
        };
        if let Err(cause) = own.valid_until(now) {
            self.stage = Stage::Refused(Refusal::Lost(part.key.clone(), cause));
            slot.lose(inside.owner, cause, cx);
        } else if !part.mode.fits_inside(own.used()) {
            self.stage = Stage::Refused(Refusal::Upgrade(part.key.clone(), own.used()));
        } else if let Some(hold) = own.hold_mut() {
            let number = hold.add(&self.options, Some(inside.entry), self.runs_body, now);
            own.entries_change(now);
            part.enters(own, number, None);
        }
    }

    /// Gets the turns, and then asks the store. `None` goes on.
    fn ready_step(&mut self, id: CallId, slots: &mut Slots, cx: &mut Common) -> Option<Step> {
        let now = cx.now;
        let lacking = self.lacking();
        for n in lacking.iter().copied() {
            let options = self.options(n);
            let slot = &mut slots[self.parts[n].slot];
            match slot.take_turn(id, &options, lacking.len() > 1, cx) {
                Turn::Has => {}
                Turn::Joins => {
                    let own = slot.current_mut()?;
                    let number = own.hold_mut()?.join(&options, self.runs_body, now);
                    self.parts[n].enters(own, number, Some(By::Local));
                    return Some(Step::Entered(self.take_entered()));
                }
                turn => {
                    // While a call waits for one turn, it keeps no other, because it would block other calls of a free lock.
                    if self.parts.len() > 1 {
                        self.give_turns_back(id, |_| false, slots);
                    }
                    let waits = turn == Turn::WaitsForDecision || !self.asks_once();
                    self.stage = if waits {
                        let line = &mut slots[self.parts[n].slot].line;
                        line.wait(id, options, self.started);
                        // A call with a short wait does not learn from its place in the line who has the lock.
                        if !self.is_shorter(cx.settings.response_timeout) {
                            self.contended = Some((n, None));
                        }
                        Stage::Queued(n)
                    } else {
                        Stage::Refused(self.taken(n, None))
                    };
                    return None;
                }
            }
        }
        let follows = |n: &usize| {
            let slot = &slots[self.parts[*n].slot];
            slot.current.is_none() && slot.is_releasing()
        };
        let patience = cx.settings.response_timeout / 2;
        let limit = self.started + patience;
        let limit = self.contended.map_or(limit, |_| limit.min(self.deadline));
        if self.is_shorter(patience)
            && now < limit
            && let Some(n) = lacking.iter().copied().find(follows)
        {
            // The request would overtake the release. A call that waits for longer is queued at the store then.
            self.stage = Stage::Following(n);
            return Some(cx.wait(limit));
        }
        for n in lacking.iter().copied() {
            let options = self.options(n);
            let part = &mut self.parts[n];
            let own = slots[part.slot].ownership(&options, cx);
            // Without a watchdog, a grant for a short time is not renewed.
            let is_usable = |grant: &Grant| {
                let is_long_enough = options.watchdog || grant.ttl >= options.lease;
                is_long_enough && grant.is_fresh(options.lease, now)
            };
            let grant = own.grant().filter(is_usable);
            // The reply to the latest request is usable while it is valid. What the client owned before is not, once it is in doubt.
            let present = own.standing().grant();
            part.grant = grant.or(part.replied.filter(|grant| present == Some(*grant)));
        }
        if lacking.iter().all(|n| self.parts[*n].grant.is_some()) {
            return self.begin(&lacking, slots, cx).map(Step::Entered);
        }
        // The grant that an earlier call asked for may arrive.
        if let [n] = *lacking
            && let Some(step) = self.wait_step(id, n, Time::NEVER, slots, cx)
        {
            return Some(step);
        }
        let waits = |n: &&usize| {
            let own = slots[self.parts[**n].slot].current();
            own.is_some_and(|own| own.standing().is_waiting())
        };
        let waiting = || lacking.iter().find(waits).map(|n| (*n, None));
        let taken = self.contended.or_else(waiting);
        let taken = taken.filter(|_| !self.asks_once() && now >= self.deadline);
        if taken.is_some() || self.request_timeout(cx).is_zero() {
            // The store has answered each request, even if the grant was of no use.
            let (n, ttl) = taken.unwrap_or((lacking[0], None));
            self.stage = Stage::Refused(self.taken(n, ttl));
            return None;
        }
        Some(Step::Send(self.ask(id, &lacking, slots, cx)?))
    }

    /// Begins the renewals of an entry in a shared ownership. If that was lost since, the call gives the entry back.
    fn pick_up(&mut self, n: usize, slots: &mut Slots, cx: &mut Common) {
        let Some(entered) = &self.parts[n].entered else {
            return;
        };
        let (owner, number) = (entered.entry.owner, entered.entry.number);
        let own = slots[self.parts[n].slot].find_mut(owner);
        let own = own.filter(|own| own.valid_until(cx.now).is_ok());
        match own.and_then(Ownership::hold_mut) {
            Some(hold) => hold.pick_up(number, self.options.watchdog),
            None => self.leave_all(slots, cx),
        }
    }

    /// Waits for a report about the lock at this index, whose turn the call has, but not beyond `limit`. Returns `None` if the call
    /// goes on.
    fn wait_step(
        &self,
        id: CallId,
        n: usize,
        limit: Time,
        slots: &Slots,
        cx: &mut Common,
    ) -> Option<Step> {
        let slot = &slots[self.parts[n].slot];
        let own = slot.current().filter(|_| slot.line.has_turn(id))?;
        let options = self.options(n);
        let mode = slot.mode_to_ask(options.mode);
        let own = own.is_usable(&options, mode, cx.now).then_some(own)?;
        let until = own.standing().ask_at()?.min(self.deadline);
        (cx.now < until).then(|| cx.wait(until.min(limit)))
    }

    /// Asks the store for those locks that this client does not own yet.
    ///
    /// A lock that the store handed off and no hold has used is requested again with the others. If another one
    /// is taken, the client releases this one.
    fn ask(
        &mut self,
        id: CallId,
        lacking: &[usize],
        slots: &mut Slots,
        cx: &mut Common,
    ) -> Option<Box<Request>> {
        let is_owned = |n: &usize| {
            let part = &self.parts[*n];
            let own = slots[part.slot].current();
            part.grant.is_some() && own.is_some_and(|own| own.phase() == Phase::HandedOver)
        };
        let asked: Few<usize> = lacking.iter().copied().filter(|n| !is_owned(n)).collect();
        let mut claims = Few::new();
        let takes_back = cx.settings.needs_majority;
        for n in asked {
            let part = &self.parts[n];
            let own = slots[part.slot].current_mut()?;
            claims.push(own.claim(part.slot, part.key.clone(), takes_back, cx.now));
        }
        let (lease, waits) = (self.options.lease, !self.asks_once());
        let timeout = self.request_timeout(cx);
        let what = Ask::Acquire { lease, waits };
        Some(self.sends(id, claims, what, timeout, cx))
    }

    /// Begins the holds. Returns `None` if one of the ownerships has no token, or a grant came too late.
    pub(super) fn begin(
        &mut self,
        lacking: &[usize],
        slots: &mut Slots,
        cx: &mut Common,
    ) -> Option<Few<Entered>> {
        let now = cx.now;
        let until = |n: usize| {
            let grant = self.parts[n].grant.as_ref();
            grant.map_or(now, |grant| valid_until(grant.since, grant.ttl))
        };
        if lacking.iter().any(|n| until(*n) <= now) {
            // The other locks were granted earlier, and have waited for this one, which another client had.
            let waited_for = lacking.iter().copied().find(|n| until(*n) > now);
            self.contended = self.contended.or(waited_for.map(|n| (n, None)));
            self.drop_grants();
            self.fails(Failure::UNANSWERED, cx);
            return None;
        }
        for n in lacking.iter().copied() {
            let options = self.options(n);
            let part = &mut self.parts[n];
            let (grant, slot) = (part.grant.take()?, &mut slots[part.slot]);
            let own = slot.current_mut()?;
            let Some(number) = own.begin(&options, self.runs_body, grant, now) else {
                // The call asks with another owner.
                self.leave_all(slots, cx);
                return None;
            };
            part.enters(own, number, Some(own.standing().by()));
            slot.line.begins();
            slot.show_as(&part.key);
        }
        Some(self.take_entered())
    }

    fn take_entered(&mut self) -> Few<Entered> {
        let entered = |part: &mut Part| part.entered.take();
        self.parts.iter_mut().filter_map(entered).collect()
    }

    /// Leaves all entries of a call.
    fn leave_all(&mut self, slots: &mut Slots, cx: &mut Common) {
        for part in &mut self.parts {
            if let Some(entered) = part.entered.take() {
                slots[part.slot].leave(&entered.entry, HoldEnd::Cancelled, None, cx);
            }
        }
    }

    /// Gives back the turns of the call, except those that it `keeps`, because the other locks may be free.
    pub(super) fn give_turns_back(
        &self,
        id: CallId,
        keeps: impl Fn(&Part) -> bool,
        slots: &mut Slots,
    ) {
        for part in self.parts.iter().filter(|part| !keeps(part)) {
            slots[part.slot].line.give_back(id);
        }
    }

    /// Ends a call that gets no lock.
    fn refuse(&mut self, id: CallId, why: Refusal, slots: &mut Slots, cx: &mut Common) -> Step {
        self.abandon(id, slots, cx);
        Step::Refused(why)
    }

    /// Gives up everything that a call has or waits for.
    pub(super) fn abandon(&mut self, id: CallId, slots: &mut Slots, cx: &mut Common) {
        self.give_turns_back(id, |_| false, slots);
        self.leave_all(slots, cx);
    }
}
