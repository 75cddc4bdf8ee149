//! One key: its ownerships, whose turn it is, and the calls that wait.
//!
//! At each moment, a call has the turn and may ask the store, or the current ownership has a hold or is retained, or
//! no call uses the key. To the store, all calls of a client are one waiter.
//!
//! Further shared calls join the current shared ownership under four conditions. They lock one key, ask for its lease and
//! use the watchdog. All have a `max_hold`, or none has. Nothing is in doubt. Less than a third of the lease has passed
//! since its last confirmation. When another client or a local call waits, the ownership stops being current
//! (`leave_shared`). Its calls continue, and later calls ask with another owner, behind the earlier waiters. A permit is
//! never current while it is held.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;

use super::{
    CallId, Context, Life, Owner,
    call::{Call, Stage},
    doubt::Report,
    hold::Hold,
    input::Event,
    output::{HoldEnd, Output, Revoked},
    ownership::Ownership,
    phase::Phase,
    renewals::Due,
    schedule::Target,
};
use crate::{
    key::Key,
    lease::Time,
    lost::LostCause,
    mode::LockMode,
    options::LockOptions,
    store::{GRACE, RenewalOutcome},
};

/// What a call that wants to use a key does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has the turn.
    Has,
    /// It joins the shared ownership.
    Joins,
    /// It waits for its turn.
    Waits,
}

/// How long an ownership waits for a new fence while local calls wait.
const FENCE_WAIT: Duration = Duration::from_secs(1);

/// A key that the client uses: its ownerships, and the calls that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The key.
    pub key: Key,
    /// The current one, and those that have ended or are lost.
    pub(super) ownerships: SmallVec<[Ownership; 1]>,
    /// The ownership that the call with the turn asks for, or that has a hold or is retained.
    pub(super) current: Option<Owner>,
    pub(super) turn: Option<CallId>,
    pub(super) queue: VecDeque<CallId>,
    /// Calls that ask once, and first learn what the call with the turn gets. The lock may have room for them, too.
    attempts: Vec<CallId>,
    /// The mode of an attempt that the store has just refused, and when its request was sent.
    pub(super) refused: Option<(LockMode, Time)>,
    /// Whether other clients wait for the lock, as far as is known.
    pub wanted: bool,
    /// How many further calls are served before other clients are.
    handovers: usize,
}

impl Slot {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            ownerships: SmallVec::new(),
            current: None,
            turn: None,
            queue: VecDeque::new(),
            attempts: Vec::new(),
            refused: None,
            wanted: false,
            handovers: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ownerships.is_empty() && self.turn.is_none() && self.queue.is_empty()
    }

    /// Returns the ownerships, those included that have ended and are not forgotten yet.
    #[must_use]
    pub fn ownerships(&self) -> &[Ownership] {
        &self.ownerships
    }

    /// Returns the number of calls that wait.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn find(&self, owner: Owner) -> Option<&Ownership> {
        self.ownerships.iter().find(|own| own.owner == owner)
    }

    pub(super) fn find_mut(&mut self, owner: Owner) -> Option<&mut Ownership> {
        self.ownerships.iter_mut().find(|own| own.owner == owner)
    }

    /// Returns the ownership that the next call may use.
    #[must_use]
    pub fn current(&self) -> Option<&Ownership> {
        self.find(self.current?)
    }

    /// Returns the ownerships that have the lock, each with its present hold or the last one. The current one comes first.
    pub fn held(&self, now: Time) -> impl Iterator<Item = (&Ownership, &Hold)> {
        let current = self.current();
        let is_other = move |own: &&Ownership| Some(own.owner) != self.current;
        let others = self.ownerships().iter().filter(is_other);
        let is_held = move |own: &&Ownership| own.is_owned() && !own.left(now).is_zero();
        let held = current.into_iter().chain(others).filter(is_held);
        held.filter_map(|own| Some((own, own.hold()?)))
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Ownership> {
        self.find_mut(self.current?)
    }

    fn is_retained(&self) -> bool {
        (self.current()).is_some_and(|own| own.phase() == Phase::Retained)
    }

    /// Returns whether the store may still have the lock for an ownership that is being released.
    pub(super) fn is_releasing(&self) -> bool {
        self.ownerships.iter().any(Ownership::is_releasing)
    }

    /// Gives the call the turn, unless another call has it or waits for it. A call that `may_join` need not have it.
    pub(super) fn take_turn(
        &mut self,
        call: CallId,
        (terms, mode, may_join): (&LockOptions, LockMode, bool),
        cx: &mut Context,
    ) -> Turn {
        if self.turn != Some(call) && self.queue.is_empty() {
            self.look_at_turn(cx);
        }
        if self.turn.is_none() && self.queue.is_empty() {
            let is_free = match self.current() {
                Some(own) if own.phase() == Phase::Held => {
                    if may_join && !self.wanted && own.may_join(terms, mode, cx.now) {
                        return Turn::Joins;
                    }
                    // An attempt that the store would refuse closes no shared lock.
                    let is_vain = terms.wait.is_none()
                        && mode != LockMode::Shared
                        && own.mode == LockMode::Shared
                        && own.valid_until(cx.now).is_ok();
                    let leaves = !is_vain && self.is_shared();
                    if leaves {
                        self.leave_shared();
                    }
                    leaves
                }
                Some(own) if own.phase() == Phase::Retained => {
                    self.resume(terms, mode, cx) == Turn::Has
                }
                _ => true,
            };
            self.turn = is_free.then_some(call);
        }
        if self.turn == Some(call) {
            Turn::Has
        } else {
            Turn::Waits
        }
    }

    /// Returns whether the current hold is shared or a permit on the store.
    fn is_shared(&self) -> bool {
        (self.current())
            .is_some_and(|own| own.phase() == Phase::Held && own.mode != LockMode::Exclusive)
    }

    /// Lets no further call join a shared ownership or use a held permit: the next call asks the store with another owner.
    fn leave_shared(&mut self) {
        (self.current, self.wanted) = (None, false);
    }

    /// Lets the first calls of the queue join a shared ownership whose hold has begun.
    pub(super) fn admit(&mut self, cx: &mut Context) {
        let (key, now) = (self.key.clone(), cx.now);
        while let Some(next) = self.queue.front().copied()
            && let Some(call) = cx.calls.get_mut(&next).and_then(Call::acquisition)
            && let Some(own) = self.current.and_then(|owner| self.find_mut(owner))
            && call.may_join(&key)
            && own.may_join(&call.terms, LockMode::Shared, now)
            && let Some(hold) = own.hold_mut()
        {
            let number = hold.join(&call.terms, now);
            hold.pick_up(number, false);
            call.joins(&key, own, number, now);
            self.queue.pop_front();
            cx.look_at_call(next, now + GRACE);
            cx.wake(next);
        }
    }

    /// Returns whether a call that asks once may wait, either for tokens of the retained lock that are on their way, or for the
    /// reply to the call with the turn, whose lock it may share. It may not if that call waits for another client, or the lock
    /// is held.
    pub(super) fn may_attend(&self, mode: LockMode, cx: &Context) -> bool {
        // On a quorum, that call may learn that no owner has a majority.
        let may_follow = mode != LockMode::Exclusive || cx.settings.needs_majority;
        may_follow && self.is_decided_soon(cx) || self.needs_tokens()
    }

    /// Makes a call that asks once wait.
    pub(super) fn attend(&mut self, call: CallId) {
        if !self.attempts.contains(&call) {
            self.attempts.push(call);
        }
    }

    /// Returns whether the lock is retained, and the next hold needs tokens that are on their way.
    fn needs_tokens(&self) -> bool {
        (self.current()).is_some_and(|own| {
            own.phase() == Phase::Retained && own.tokens.is_coming() && !own.tokens.is_left()
        })
    }

    fn is_decided_soon(&self, cx: &Context) -> bool {
        let turn = self.turn.and_then(|turn| cx.calls.get(&turn));
        let waits = (self.current()).is_some_and(|own| own.standing.ask_at().is_some());
        turn.is_some_and(Call::acts_soon) && !waits
    }

    /// Makes the call wait for its turn.
    pub(super) fn enqueue(&mut self, call: CallId) {
        if !self.queue.contains(&call) {
            self.queue.push_back(call);
        }
    }

    /// Takes the call out of the turn or the queue.
    pub(super) fn give_back(&mut self, call: CallId, cx: &mut Context) {
        if self.turn == Some(call) {
            self.pass_turn(cx);
        } else if !self.queue.is_empty() {
            self.queue.retain(|queued| *queued != call);
        }
    }

    /// Ends the retention for a call with these terms, which then uses the ownership. If it cannot, the ownership is
    /// released instead. The call waits if its tokens are on their way.
    fn resume(&mut self, terms: &LockOptions, mode: LockMode, cx: &mut Context) -> Turn {
        let now = cx.now;
        let Some(own) = self.current_mut() else {
            return Turn::Has;
        };
        let fits = own.fits(terms, mode, now);
        if fits && own.tokens.is_left() {
            own.pass_on();
        } else if fits && own.tokens.is_coming() {
            return Turn::Waits;
        } else {
            self.end_current(cx);
        }
        Turn::Has
    }

    /// Ends the current ownership, which is released if the store may know it.
    pub(super) fn end_current(&mut self, cx: &mut Context) {
        if let Some(own) = self.current_mut() {
            let (owner, concerns_store) = (own.owner, own.concerns_store());
            own.end(cx.now);
            if !concerns_store {
                self.forget(owner, cx);
            }
        }
        (self.current, self.wanted) = (None, false);
    }

    /// Releases an owner that no call uses any more, if the store has granted it a lock or still has it in the wait queue.
    /// So other waiters wait neither for the end of the grant nor behind this owner.
    pub(super) fn decline(&mut self, owner: Owner, mode: LockMode, cx: &Context) {
        let mut own = Ownership::new(owner, mode, GRACE, cx.settings.tokens);
        own.end(cx.now);
        self.ownerships.push(own);
    }

    /// Forgets an ownership that is over.
    fn forget(&mut self, owner: Owner, cx: &mut Context) {
        if let Some(at) = self.ownerships.iter().position(|own| own.owner == owner) {
            let mut own = self.ownerships.remove(at);
            cx.schedule.remove(Target::Own(owner), &mut own.due);
        }
    }

    /// Passes the turn to the next call, with the current ownership. Without one, gives the ownership up.
    pub(super) fn pass_turn(&mut self, cx: &mut Context) {
        debug_assert!(self.current().is_none_or(|own| own.phase() != Phase::Held));
        self.turn = self.queue.pop_front();
        let Some(next) = self.turn else {
            return self.end_current(cx);
        };
        if let Some(call) = cx.calls.get_mut(&next).and_then(Call::acquisition) {
            call.acts_by = cx.now + GRACE;
        }
        cx.wake(next);
    }

    /// Returns the ownership for the call with the turn: the one that the call before left, or a fresh one.
    pub(super) fn ownership(
        &mut self,
        lease: Duration,
        mode: LockMode,
        cx: &mut Context,
    ) -> &mut Ownership {
        if self
            .current()
            .is_none_or(|own| !own.is_usable(lease, mode, cx.now))
        {
            self.end_current(cx);
            let owner = cx.number();
            let tokens = cx.settings.tokens;
            self.ownerships
                .push(Ownership::new(owner, mode, lease, tokens));
            self.current = Some(owner);
        }
        let own = self.current_mut().expect("there is one now");
        if own.phase() == Phase::Asking {
            // A call before may have asked for less.
            own.lease.full = own.lease.full.max(lease);
        }
        own
    }

    /// Notes that the store granted the lock to this client.
    pub(super) fn arrived(&mut self, wanted: bool, cx: &Context) {
        self.handovers = self.queue.len().min(cx.settings.local_handovers);
        self.wanted |= wanted;
    }

    /// Ends a hold without entries: the next call gets it, or it is retained, or it is released.
    pub(super) fn end_hold(&mut self, owner: Owner, may_continue: bool, cx: &mut Context) {
        let now = cx.now;
        let next = self.queue.front().and_then(|next| cx.calls.get(next));
        let terms = next.and_then(|next| next.terms(&self.key));
        let (is_alone, may_serve) = (terms.is_none(), !self.wanted || self.handovers > 0);
        let may_retain = !self.wanted && !cx.is_draining();
        let is_current = self.current == Some(owner);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if !is_current {
            return own.end(now);
        }
        if may_continue && own.is_certain(now) {
            own.tokens.run_low();
            let fits = terms.is_some_and(|(terms, mode)| own.fits(terms, mode, now));
            if fits && may_serve && own.tokens.is_left() {
                own.pass_on();
                self.handovers = self.handovers.saturating_sub(1);
                return self.pass_turn(cx);
            }
            let retain = match (is_alone, fits) {
                (true, _) => own.retain(),
                (false, true) => FENCE_WAIT,
                (false, false) => Duration::ZERO,
            };
            if may_retain && !retain.is_zero() && own.tokens.is_coming() {
                return own.retain_until(now + retain);
            }
        }
        self.end_current(cx);
        self.pass_turn(cx);
    }

    /// Marks an ownership as lost, and lets the next call ask the store. At the end of a `max_hold`, or if another client
    /// revokes the lock, only the hold is lost: it keeps the ownership until it ends.
    pub(super) fn lose(&mut self, owner: Owner, cause: LostCause, cx: &mut Context) {
        let key = self.key.clone();
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        match own.phase() {
            // The call with the turn asks with another owner.
            Phase::HandedOver => own.lost = Some(cause),
            Phase::Asking | Phase::Lost | Phase::Ended => {}
            Phase::Held | Phase::Retained => {
                let is_held = own.phase() == Phase::Held;
                if let Some(hold) = own.hold().filter(|_| is_held && own.lost.is_none()) {
                    let loss = own.loss(&key, hold, cause);
                    cx.outputs.push(Output::Lost(Box::new(loss)));
                }
                own.lost.get_or_insert(cause);
                let keeps = matches!(cause, LostCause::MaxHold | LostCause::Revoked)
                    && is_held
                    && cx.now < own.lease.valid_until;
                if !keeps {
                    self.drop_lost(owner, cx);
                }
            }
        }
    }

    /// Takes a lost ownership out of the turn.
    fn drop_lost(&mut self, owner: Owner, cx: &mut Context) {
        if let Some(own) = self.find_mut(owner) {
            own.drop_lost();
            if own.entries() == 0 {
                // Some servers may still have the lock.
                own.end(cx.now);
            }
        }
        if self.current == Some(owner) {
            (self.current, self.wanted) = (None, false);
            self.pass_turn(cx);
        }
    }

    /// Marks all ownerships as lost, because the client ends. Those without a body are released, whether or not their
    /// guards still exist.
    pub(super) fn close(&mut self, cx: &mut Context) {
        let owners: SmallVec<[Owner; 1]> = self.ownerships.iter().map(|own| own.owner).collect();
        for owner in owners {
            self.lose(owner, LostCause::Closed, cx);
            let Some(own) = self.find_mut(owner) else {
                continue;
            };
            own.leave_release_to_background(cx.now);
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

    /// Takes the lock from its owner at once, as another client has from the store.
    pub(super) fn take_away(&mut self, owner: Owner, cx: &mut Context) {
        self.lose(owner, LostCause::Revoked, cx);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        own.revoked(cx.now);
        match own.phase() {
            Phase::Held | Phase::Retained => self.drop_lost(owner, cx),
            Phase::Asking | Phase::HandedOver => {
                own.lost = Some(LostCause::Revoked);
                self.wake_turn(cx);
            }
            Phase::Lost | Phase::Ended => {}
        }
    }

    /// Wakes the call with the turn, to which the store has just handed the lock off. Unless it is polled within the
    /// grace period, others may have the turn.
    pub(super) fn wake_for_grant(&mut self, cx: &mut Context) {
        let turn = self.turn.and_then(|turn| cx.calls.get_mut(&turn));
        if let Some(call) = turn.and_then(Call::acquisition)
            && !matches!(call.stage, Stage::Asking(_))
        {
            call.acts_by = call.acts_by.min(cx.now + GRACE);
        }
        self.wake_turn(cx);
    }

    pub(super) fn wake_turn(&self, cx: &mut Context) {
        if let Some(turn) = self.turn {
            cx.wake(turn);
        }
    }

    /// Applies what happened to the lock of this owner.
    pub(super) fn on(&mut self, owner: Owner, event: Event, cx: &mut Context) {
        let now = cx.now;
        let is_current = self.current().is_some_and(|own| own.owner == owner);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        if matches!(event, Event::Granted { .. } | Event::Retry { .. }) {
            own.release_again(now);
        }
        match event {
            Event::Renewed {
                mode,
                lease,
                sent_at,
                outcome,
            } => {
                let mut is_wanted = false;
                if let Some(RenewalOutcome::Held { wanted, fence }) = outcome {
                    own.renewed(sent_at, lease, fence, now);
                    is_wanted = wanted && is_current;
                    if own.lease.renewal_sent.is_none() {
                        // The next look is later.
                        cx.schedule.remove(Target::Own(owner), &mut own.due);
                    }
                }
                own.tokens.end_wish();
                // A renewal of the exclusive lock may be executed when that is shared already.
                let is_outdated = mode != own.mode;
                let cause = own.ended_by_clock(now).unwrap_or(LostCause::Removed);
                self.wanted |= is_wanted;
                if outcome == Some(RenewalOutcome::Lost) && !is_outdated {
                    self.lose(owner, cause, cx);
                }
            }
            Event::Granted {
                fence, ttl, wanted, ..
            } => {
                if own.phase().is_pending() && own.standing.is_new(fence) {
                    own.standing.handed_off(fence, ttl, wanted);
                    own.doubt.reported(Report::HandedOff, now);
                    self.arrived(wanted, cx);
                    self.wake_for_grant(cx);
                }
            }
            Event::Wanted => self.wanted |= is_current,
            // Another client tries to acquire a lock that this one shares with others.
            Event::Retry { after, .. } if own.phase() == Phase::Retained => {
                own.end_retention(now + after);
            }
            Event::Retry { after, .. } => {
                own.standing.ask_by(now + after);
                self.wake_turn(cx);
            }
            Event::Changed => {
                // Other holders come, go and renew their leases. Renewals find a loss.
                if own.mode == LockMode::Exclusive {
                    own.doubt.reported(Report::Changed, now);
                }
                own.standing.changed();
                self.wake_turn(cx);
            }
            Event::Missed { is_heard } => {
                own.doubt.reported(Report::Missed { is_heard }, now);
                // A report of a change may be due to a renewal. This is not.
                own.lease.renewal_sent = None;
                own.standing.ask_by(now);
                self.wake_turn(cx);
            }
            Event::Revoke { token, at_once } => {
                let revoked = self.revocable(owner, token, at_once);
                self.revoke(owner, revoked, at_once, cx);
                cx.outputs.push(Output::Revoked(revoked));
            }
        }
    }

    /// Decides how this client reacts when another client revokes the lock.
    fn revocable(&self, owner: Owner, token: Option<u64>, at_once: bool) -> Revoked {
        let Some(own) = self.find(owner) else {
            return Revoked::NotHeld;
        };
        let is_other = token.is_some_and(|token| !own.may_have(token));
        let phase = own.phase();
        // The reply with the token may be on its way, so the store compares the token.
        let is_unknown = token.is_some() && own.standing.grant().is_none();
        match phase {
            Phase::Lost | Phase::Ended => Revoked::NotHeld,
            _ if phase.is_pending() && (!at_once || is_unknown) => Revoked::NotHeld,
            _ if is_other => Revoked::OtherHold,
            Phase::Retained => Revoked::Retained,
            Phase::Held if own.lost().is_none() => Revoked::Lost,
            Phase::Asking | Phase::HandedOver | Phase::Held => Revoked::Given,
        }
    }

    fn revoke(&mut self, owner: Owner, revoked: Revoked, at_once: bool, cx: &mut Context) {
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
    }

    /// Handles the deadlines of an ownership that have passed.
    pub(super) fn come_due(&mut self, owner: Owner, cx: &mut Context) {
        let now = cx.now;
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        own.due = None;
        match own.come_due(now) {
            Due::Lost(cause) => self.lose(owner, cause, cx),
            Due::Renewal(lease) => {
                let key = self.key.clone();
                if let Some(own) = self.find_mut(owner) {
                    let renew = own.begin_renewal(key, lease, &cx.settings, now);
                    cx.outputs.push(Output::Renew(Box::new(renew)));
                }
            }
            Due::Nothing => {}
        }
    }

    /// Does what follows from the state of the slot, whatever the input was: ends a retention or a shared ownership that a
    /// call waits for, releases ended ownerships, schedules the next check, and forgets those that are over.
    pub(super) fn settle(&mut self, cx: &mut Context) {
        let was_releasing = self.is_releasing();
        let is_permit =
            (self.current()).is_some_and(|own| matches!(own.mode, LockMode::Permits(_)));
        let is_waited_for = self.wanted || !self.queue.is_empty() || cx.is_draining();
        if (is_permit || is_waited_for) && self.is_shared() {
            self.leave_shared();
            self.pass_turn(cx);
        }
        if self.is_retained() {
            let next = self.queue.front().and_then(|next| cx.calls.get(next));
            let terms = next.and_then(|next| next.terms(&self.key));
            let terms = terms.map(|(terms, mode)| (*terms, mode));
            let is_kept = self.current().is_some_and(|own| {
                // It may have waited for tokens on behalf of calls that are gone.
                Some(cx.now) < own.retained_until() && (terms.is_some() || !own.retain().is_zero())
            });
            if self.wanted || cx.is_draining() || !is_kept {
                self.end_current(cx);
            }
            let turn = terms.map(|(terms, mode)| self.resume(&terms, mode, cx));
            if turn == Some(Turn::Has) || self.current.is_none() {
                self.pass_turn(cx);
            }
        }
        let mut at = 0;
        while let Some(own) = self.ownerships.get_mut(at) {
            let owner = own.owner;
            let is_due = own.request_due(cx.settings.counts_entries) <= cx.now;
            match own.is_releasing() {
                _ if !is_due || cx.life == Life::Ended => {}
                true => self.release_in_background(owner, cx),
                false => self.show(owner, cx),
            }
            let Some(own) = self.ownerships.get_mut(at).filter(|own| own.owner == owner) else {
                continue;
            };
            if own.is_over(cx.now) {
                self.forget(owner, cx);
                continue;
            }
            let due = own.next_due(cx.now, cx.settings.counts_entries);
            let target = Target::Own(owner);
            cx.schedule
                .look_by(due, target, Some(&self.key), &mut own.due);
            at += 1;
        }
        let refused = self.refused.take();
        if !self.attempts.is_empty() {
            for id in std::mem::take(&mut self.attempts) {
                let terms = cx.calls.get(&id).and_then(|call| call.terms(&self.key));
                if terms.is_some_and(|(_, mode)| self.may_attend(mode, cx)) {
                    self.attempts.push(id);
                    continue;
                }
                // The store has refused the same to another attempt since this one began.
                if let Some((mode, sent_at)) = refused
                    && let Some(call) = cx.calls.get_mut(&id).and_then(Call::acquisition)
                {
                    call.follow_refusal(&self.key, mode, sent_at);
                }
                cx.wake(id);
            }
        }
        self.watch_turn(cx);
        // A call that has taken its step may wait for a release that has ended since.
        let has_released = was_releasing && !self.is_releasing();
        if self.current.is_none() && (self.turn != cx.stepped || has_released) {
            self.wake_turn(cx);
        }
    }

    /// Panics if the slot is not consistent.
    pub(super) fn check(&self, cx: &Context) {
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
                !is_current || !is_shared || self.queue.is_empty(),
                "no call waits behind a shared ownership",
            );
        }
        match self.current().map(Ownership::phase) {
            None => is(self.current.is_none(), "the current ownership is known"),
            Some(Phase::Asking | Phase::HandedOver) => {
                is(self.turn.is_some(), "a call has the turn for it");
            }
            Some(Phase::Held) => is(self.turn.is_none(), "the hold has the turn"),
            Some(Phase::Retained) => {
                is(self.turn.is_none(), "no call has the turn");
                let waits = self.current().is_some_and(|own| !own.tokens.is_left());
                is(self.queue.is_empty() || waits, "a retained lock is free");
            }
            Some(Phase::Lost | Phase::Ended) => is(false, "what is over is not current"),
        }
        let is_used = self.turn.is_some() || self.current.is_some();
        is(self.queue.is_empty() || is_used, "waiters are served");
        let exists = |call: &CallId| cx.calls.contains_key(call);
        is(
            self.queue.iter().chain(&self.turn).all(exists),
            "calls exist",
        );
    }
}
