//! What a reply, or its absence, changes: in the ownerships of its request, and in the call that sent it.

use std::time::Duration;

use super::{
    CallId, Common, Machine, SlotId, Touched,
    call::{Acquisition, Call, Ending, Part, Stage, Work},
    doubt::{Answer, Asked},
    input::{Failure, Reply},
    output::{Ask, Claimed, Entered, Renew, Request, Step},
    ownership::Phase,
    slot::Slot,
    slots::Slots,
    standing::Standing,
    timer::Target,
};
use crate::{
    few::{self, Few},
    lease::Time,
    store::{Acquired, Grant, RenewalOutcome, TakenBy},
    wait::Spread,
};

/// How often a call asks again because a change of its lock was reported. Requests of the same client over another
/// connection are reported, too.
const MOST_CONFIRMATIONS: u8 = 3;

/// How long a call that waits for one of several locks keeps those that precede it in the order of the keys. It gives up later ones
/// at once. Otherwise, two calls that each have what the other lacks would swap their locks again and again.
const KEEPS_EARLIER: Duration = Duration::from_millis(10);

/// The reply that another owner has one of the locks.
struct Taken {
    /// The position of its claim in the request.
    claim: usize,
    /// The slots of the locks that this client does not have.
    not_held: Few<SlotId>,
    ttl: Option<Duration>,
    is_split: bool,
    retired: bool,
}

impl Machine {
    /// Applies the reply to a request, and takes the next step of the call that sent it, unless its future was dropped.
    pub(super) fn reply(&mut self, request: &Request, reply: Reply) -> Touched {
        match request.what {
            Ask::Acquire { .. } => self.acquired(request, reply),
            Ask::SetCount { .. } | Ask::Downgrade { .. } => {
                let claim = &request.claims[0];
                if let Some(own) = self.slots.own_mut(claim.slot, claim.owner) {
                    own.count_answered(request, reply.applied(), &mut self.cx);
                }
                request.slots()
            }
            Ask::Release { .. } => self.released(request, reply),
        }
    }

    /// Applies the reply to a release. A call ends when it has its outcome, and the background tries again if it has to.
    fn released(&mut self, request: &Request, reply: Reply) -> Touched {
        let claim = &request.claims[0];
        let Ask::Release {
            held, waits_until, ..
        } = request.what
        else {
            return request.slots();
        };
        let is_dropped = reply == Reply::None;
        let is_final = matches!(&reply, Reply::Failed(failure) if !failure.transient);
        let slot = self.slots.get_mut(claim.slot);
        let released = slot.and_then(|slot| {
            slot.released(
                request,
                held,
                reply.applied(),
                &mut self.calls,
                &mut self.cx,
            )
        });
        let outcome = released.map(|outcome| outcome.and(held));
        match (request.call, outcome) {
            (None, _) => {}
            (Some(_), Some(outcome)) if !is_dropped => {
                self.step(Step::Left(outcome));
            }
            (Some(id), outcome) => {
                let ending = Ending {
                    slot: claim.slot,
                    owner: claim.owner,
                    held,
                    outcome,
                    waits_until: if is_final { self.cx.now } else { waits_until },
                };
                self.calls.insert(id, Call::new(Work::End(ending)));
                if !is_dropped {
                    return self.poll(id);
                }
            }
        }
        request.slots()
    }

    /// Applies the reply to an acquire to its ownerships, and then to the call, if it waits for it.
    fn acquired(&mut self, request: &Request, reply: Reply) -> Touched {
        let (Ask::Acquire { lease, waits }, Some(id)) = (&request.what, request.call) else {
            return request.slots();
        };
        let is_dropped = reply == Reply::None;
        self.cx.polled = Some(id).filter(|_| !is_dropped);
        let in_part = reply.granted_in_part();
        let reply = reply.acquired();
        let (slots, cx) = (&mut self.slots, &mut self.cx);
        replied(request, (&reply, &in_part), is_dropped, slots, cx);
        let call = self.calls.get_mut(&id);
        let asking = call.and_then(|call| call.asking(request.number));
        let (slots, cx) = (&mut self.slots, &mut self.cx);
        let (mut entered, mut refused) = (None, None);
        match reply {
            Ok(Acquired::Granted {
                fences,
                wanted,
                sent_at,
            }) => {
                let grants = fences.iter().map(|fence| Grant {
                    fence: *fence,
                    since: sent_at,
                    ttl: *lease,
                    wanted,
                });
                let grants = grant(request, grants, slots, cx);
                if let Some(call) = asking {
                    entered = call.on_granted(request, &grants, slots, cx);
                }
            }
            Ok(Acquired::Taken {
                claim,
                ttl,
                queued,
                sent_at,
                past_fences,
                retired,
                by,
            }) => {
                let place = |n, standing: &mut Standing, timing| {
                    if n == claim && *waits {
                        standing.refused(sent_at, ttl, queued, timing);
                    } else {
                        standing.not_granted(sent_at);
                    }
                };
                let not_held = refuse(request, past_fences, place, slots, cx);
                let taken = Taken {
                    claim,
                    not_held,
                    ttl,
                    is_split: by == TakenBy::NoMajority,
                    retired,
                };
                if !waits && !taken.is_split {
                    refused = Some((&request.claims[claim], sent_at));
                }
                if let Some(call) = asking {
                    call.on_taken(request, &taken, slots, cx);
                }
            }
            Ok(Acquired::Outdated) | Err(_) => {
                let failure = reply.err().unwrap_or(Failure::UNANSWERED);
                let given_up = give_up(request, &in_part, slots, cx);
                if let Some(call) = asking {
                    call.on_failed(id, failure, &given_up, slots, cx);
                }
            }
        }
        for claim in &request.claims {
            let now = cx.now;
            if let Some(slot) = slots.get_mut(claim.slot) {
                slot.wake_turn(cx);
                // If the turn was taken back, the store may have executed the release before this request.
                if let Some(own) = slot.find_mut(claim.owner) {
                    own.release_again(now);
                }
            }
        }
        let mut touched = match entered {
            Some(entered) => self.take_step(id, Step::Entered(entered)),
            None if is_dropped => request.slots(),
            None => self.poll(id),
        };
        if let Some((claim, sent_at)) = refused
            && let Some(slot) = self.slots.get_mut(claim.slot)
        {
            slot.refuse_alike(claim.mode, sent_at, &mut self.calls, &mut self.cx);
        }
        if touched.is_empty() {
            touched = request.slots();
        }
        touched
    }
}

impl Slot {
    /// Applies the reply to a renewal.
    pub(super) fn renewed(
        &mut self,
        renew: &Renew,
        sent_at: Time,
        outcome: Option<RenewalOutcome>,
        cx: &mut Common,
    ) {
        let owner = renew.owner;
        let is_current = self.current == Some(owner);
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        let lost = own.renewed(renew, sent_at, outcome, cx.now);
        if let Some(RenewalOutcome::Held { wanted, .. }) = outcome {
            self.line.others_wait |= wanted && is_current;
        }
        if let Some(cause) = lost {
            self.lose(owner, cause, cx);
        }
        // The reply puts the next look off.
        cx.schedule.remove(Target::Slot(self.id), &mut self.due);
    }
}

/// Notes for the ownerships of an acquire that it was answered, or will not be.
fn replied(
    request: &Request,
    (reply, in_part): (&Result<Acquired, Failure>, &[usize]),
    is_dropped: bool,
    slots: &mut Slots,
    cx: &mut Common,
) {
    let is_retired = matches!(reply, Ok(Acquired::Taken { retired: true, .. }));
    let answer = match reply {
        Ok(Acquired::Granted { sent_at, .. }) => Answer::Has(*sent_at),
        Ok(Acquired::Taken { .. }) if !is_retired => Answer::HasNot,
        Ok(Acquired::Taken { .. } | Acquired::Outdated) => Answer::Missing,
        Err(failure) => (*failure).into(),
    };
    // Without its reply, it is not known whether the grants of a quorum's members were rolled back.
    let is_untold = is_dropped && cx.settings.needs_majority;
    let takes_back = is_retired || is_untold;
    for (n, claim) in request.claims.iter().enumerate() {
        if let Some(own) = slots.own_mut(claim.slot, claim.owner) {
            let asked = Asked::Acquire { takes_back };
            let is_granted = in_part.contains(&n);
            own.answered(
                asked,
                if is_granted { Answer::Missing } else { answer },
                cx.now,
            );
        }
    }
    let (claims, sent_at) = match reply {
        Ok(Acquired::Granted { sent_at, .. }) => (&request.claims[..], *sent_at),
        Ok(Acquired::Taken { claim, sent_at, .. }) => (&request.claims[*claim..=*claim], *sent_at),
        Ok(Acquired::Outdated) | Err(_) => return,
    };
    for claim in claims {
        if let Some(slot) = slots.get_mut(claim.slot) {
            slot.line.decided_at = Some(sent_at);
        }
    }
}

/// Applies the grants of a reply to the ownerships. Returns those that a hold may begin with.
fn grant(
    request: &Request,
    grants: impl ExactSizeIterator<Item = Grant>,
    slots: &mut Slots,
    cx: &Common,
) -> Few<Option<Grant>> {
    let granted = request.claims.iter().zip(grants).map(|(claim, grant)| {
        let slot = slots.get_mut(claim.slot)?;
        let own = slot.find_mut(claim.owner)?;
        let arrives = claim.arrives && own.phase().is_pending();
        let granted = own.granted(grant);
        if arrives {
            slot.line.arrives(grant.wanted, cx);
        }
        granted
    });
    few::collect(granted)
}

/// Applies a refusal to the ownerships, and to the place of each. Returns the slots of the locks that they do not have.
fn refuse(
    request: &Request,
    past_fences: Few<Option<u64>>,
    place: impl Fn(usize, &mut Standing, (Time, Spread)),
    slots: &mut Slots,
    cx: &mut Common,
) -> Few<SlotId> {
    let mut not_held = Few::new();
    for (n, (claimed, past_fence)) in request.claims.iter().zip(past_fences).enumerate() {
        not_held.extend(past_fence.map(|_| claimed.slot));
        let timing = (cx.now, cx.spread());
        let own = slots.own_mut(claimed.slot, claimed.owner);
        // A later request may have been granted since.
        let Some(own) = own.filter(|own| own.phase().is_pending()) else {
            continue;
        };
        match past_fence {
            None => own.unclear(),
            Some(past_fence) if own.phase() == Phase::Asking => {
                own.not_granted(past_fence, |standing| place(n, standing, timing));
            }
            // An earlier hold left the lock to this call, which asks with another owner. On one server, the hold has lost the lock,
            // and a quorum does not tell whether it has.
            Some(_) => slots[claimed.slot].end_current(cx),
        }
    }
    not_held
}

/// Ends the ownerships of the locks that other masters of a cluster have granted. They would keep these locks from all others until
/// a request of the call succeeds. Returns their slots.
fn give_up(
    request: &Request,
    in_part: &[usize],
    slots: &mut Slots,
    cx: &mut Common,
) -> Few<SlotId> {
    let granted = in_part.iter().map(|n| &request.claims[*n]);
    let is_pending = |claim: &&Claimed| {
        let own = slots.own_mut(claim.slot, claim.owner);
        own.is_some_and(|own| own.phase().is_pending())
    };
    let given_up: Few<SlotId> = granted.filter(is_pending).map(|claim| claim.slot).collect();
    for slot in &given_up {
        slots[*slot].end_current(cx);
    }
    given_up
}

impl Acquisition {
    /// Applies the reply that granted what the call asked for. Returns the entries of the call if it then has all its locks.
    fn on_granted(
        &mut self,
        request: &Request,
        grants: &[Option<Grant>],
        slots: &mut Slots,
        cx: &mut Common,
    ) -> Option<Few<Entered>> {
        self.stage = Stage::Ready;
        let lacking = self.lacking();
        let is_certain = |n: &usize| {
            let own = slots[self.parts[*n].slot].current();
            own.is_some_and(|own| own.grant().is_some())
        };
        // If a change was reported since the request was sent, the lock may have been lost since the grant. A hold that
        // begins nevertheless is renewed at once.
        let is_certain = lacking.iter().all(is_certain);
        if !is_certain && self.confirmations < MOST_CONFIRMATIONS && cx.now < self.limit(cx) {
            self.confirmations += 1;
            self.drop_grants();
            return None;
        }
        if grants.iter().all(Option::is_some) {
            for (claim, grant) in request.claims.iter().zip(grants) {
                let n = self.part_of(claim.slot);
                let part = &mut self.parts[n];
                (part.grant, part.replied) = (*grant, *grant);
            }
        }
        let has_all = lacking.iter().all(|n| self.parts[*n].grant.is_some());
        if is_certain && has_all {
            return self.begin(&lacking, slots, cx);
        }
        None
    }

    /// Applies the failure of a request. The call gives back the turns of these slots, whose locks it has given up.
    fn on_failed(
        &mut self,
        id: CallId,
        failure: Failure,
        given_up: &[SlotId],
        slots: &mut Slots,
        cx: &mut Common,
    ) {
        let is_kept = |part: &Part| !given_up.contains(&part.slot);
        self.contended = self.contended.filter(|(n, _)| is_kept(&self.parts[*n]));
        self.give_turns_back(id, is_kept, slots);
        self.fails(failure, cx);
    }

    /// Applies the reply that another owner has one of the locks.
    fn on_taken(&mut self, request: &Request, taken: &Taken, slots: &mut Slots, cx: &mut Common) {
        let n = self.part_of(request.claims[taken.claim].slot);
        let why = self.taken(n, taken.ttl);
        self.drop_grants();
        if taken.is_split && self.is_shorter(cx.settings.response_timeout) {
            return self.on_split(why, cx);
        }
        if self.asks_once() {
            self.stage = Stage::Refused(why);
            return;
        }
        self.contended = Some((n, taken.ttl));
        self.stage = Stage::Ready;
        if let Some(id) = request.call.filter(|_| self.lacking().len() > 1) {
            let is_kept = |part: &Part| {
                let is_earlier = part.key < self.parts[n].key && part.entered.is_none();
                is_earlier && !taken.retired && !taken.not_held.contains(&part.slot)
            };
            let keeps_any = self.parts.iter().any(is_kept);
            self.give_turns_back(
                id,
                |part| part.slot == self.parts[n].slot || is_kept(part),
                slots,
            );
            let keeps_until = if keeps_any {
                cx.now + KEEPS_EARLIER
            } else {
                Time::NEVER
            };
            self.stage = Stage::Waiting {
                index: n,
                keeps_until,
            };
        }
        if taken.retired {
            // The next owner asks without a pause.
            self.stage = self.pause(why, self.deadline, cx);
        }
    }
}
