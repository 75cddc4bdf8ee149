//! What the mutex of a client protects: the machine, and what the shell knows of its calls and holds.

use std::{collections::BTreeMap, mem, sync::Arc, task::Waker};

use rlock_proto::{
    lease::Time,
    lost::LostCause,
    machine::{
        CallId, Entered, HoldEnd, Input, Machine, Output, Owner, Renew, Request, Settings, Step,
    },
    owner::OwnerId,
    wait::Spread,
};

use super::{
    begins::Begins,
    effects::{Deed, Effects, GivenUp, Seen},
};
use crate::{engine::hold_record::HoldRecord, metrics, observe::EndedHold, store::StoreError};

pub(super) struct ClientState {
    pub(super) machine: Machine,
    pub(super) ledger: Ledger,
    /// When the background looks at the schedule next.
    pub(super) planned: Time,
    pub(super) is_ending: bool,
}

/// What the shell knows of its calls and holds.
#[derive(Default)]
pub(super) struct Ledger {
    /// The calls that wait.
    calls: BTreeMap<CallId, Waker>,
    /// The present holds by owner and first entry, each counted until it ends or is lost.
    holds: BTreeMap<(Owner, u32), (Arc<HoldRecord>, metrics::Held)>,
    pub(super) work: BackgroundWork,
    pub(super) losses: u64,
}

/// What the background has to do.
#[derive(Default)]
pub(in crate::engine) struct BackgroundWork {
    pub(in crate::engine) requests: Vec<(Request, Option<metrics::PendingRelease>)>,
    pub(in crate::engine) renewals: Vec<Renew>,
    pub(in crate::engine) failures: Vec<RenewalFailure>,
    /// How many locks were held and could not be released, and the first of them.
    pub(in crate::engine) given_up: (usize, Option<(String, OwnerId)>),
    /// What a destructor has noticed, which must not log.
    pub(super) unreported: Vec<Seen>,
}

/// Locks whose renewal failed for the same reason.
pub(in crate::engine) struct RenewalFailure {
    pub(in crate::engine) batch: Vec<Renew>,
    pub(in crate::engine) error: StoreError,
}

/// What a call acquires its locks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquiredFor {
    Guard,
    /// A body, which a loss stops. A client that closes releases the locks of a body only once the body has stopped.
    Body,
}

impl ClientState {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            machine: Machine::new(settings, Spread(fastrand::u64(..) | 1)),
            ledger: Ledger::default(),
            planned: Time::NEVER,
            is_ending: false,
        }
    }

    /// Applies an input, and notes its effects.
    pub(super) fn on(&mut self, input: Input, now: Time, effects: &mut Effects) {
        for output in self.machine.on(input, now) {
            self.ledger.note(output, effects);
        }
    }

    /// Registers the waker of a call that has to wait, forgets that of a call that does not, and plans when the background
    /// looks at the schedule.
    pub(super) fn conclude(&mut self, effects: &mut Effects, now: Time) {
        // If the computer has slept, the planned time may have passed.
        if let Some(due) = self.machine.due()
            && (due < self.planned || self.planned < now)
        {
            (effects.has_work, self.planned) = (true, due);
        }
        effects.is_ending = self.is_ending;
        let Some(call) = effects.call else {
            return;
        };
        let waits = matches!(effects.step, Some(Step::Wait));
        effects.former = match effects.waker.take_if(|_| waits) {
            Some(waker) => self.ledger.calls.insert(call, waker),
            None if waits => None,
            None => self.ledger.calls.remove(&call),
        };
    }

    /// Returns the hold of an entry. Notes a hold that begins.
    pub(super) fn enter(
        &mut self,
        entered: &Entered,
        begins: &Begins,
        now: Time,
    ) -> Arc<HoldRecord> {
        let Entered { entry, first, .. } = entered;
        let place = (entry.owner, *first);
        if entered.began.is_none()
            && let Some((hold, _)) = self.ledger.holds.get(&place)
            && hold.token == entered.token
        {
            return Arc::clone(hold);
        }
        let hold = Arc::new(HoldRecord::new(entered));
        let own = self.machine.own_at(entry.slot, entry.owner);
        match own.map_or(Err(LostCause::Released), |own| own.valid_until(now)) {
            Ok(end) => hold.lasts_until(end),
            // The same input may have ended it.
            Err(cause) => hold.lose(cause, Arc::from([entry.number])),
        }
        if entered.began.is_some() {
            let counted = metrics::Held::begin(begins.counters, now);
            self.ledger
                .holds
                .insert(place, (Arc::clone(&hold), counted));
        }
        hold
    }
}

impl Ledger {
    /// Returns the present holds of an owner.
    pub(super) fn holds(&self, owner: Owner) -> impl Iterator<Item = &Arc<HoldRecord>> {
        let holds = self.holds.range((owner, 0)..=(owner, u32::MAX));
        holds.map(|(_, (hold, _))| hold)
    }

    /// Carries out an output, or notes it for outside of the mutex.
    fn note(&mut self, output: Output, effects: &mut Effects) {
        match output {
            Output::Step(step) => effects.step = Some(step),
            Output::Revoked(revoked) => effects.revoked = Some(revoked),
            Output::Wake(call) => {
                let polled = effects.waker.take_if(|_| effects.call == Some(call));
                if let Some(waker) = polled.or_else(|| self.calls.remove(&call)) {
                    effects.deeds.push(Deed::Wake(waker));
                }
            }
            Output::Send(request) => {
                effects.requests.push(*request);
                effects.has_work = true;
            }
            Output::Renew(renew) => {
                self.work.renewals.push(*renew);
                effects.has_work = true;
            }
            Output::Lost(loss) => {
                self.losses += 1;
                let mut first = None;
                let entries: Arc<[u32]> = loss.entries.as_slice().into();
                let of_owner = (loss.owner, 0)..=(loss.owner, u32::MAX);
                // A release may find that an earlier hold was lost.
                let holds = (!loss.entries.is_empty()).then(|| self.holds.range_mut(of_owner));
                for (_, (hold, held)) in holds.into_iter().flatten() {
                    hold.lose(loss.cause, Arc::clone(&entries));
                    let deed = Deed::End(Arc::clone(hold), HoldEnd::Lost, mem::take(held));
                    effects.deeds.push(deed);
                    first.get_or_insert_with(|| Arc::clone(hold));
                }
                effects.seen.push(Seen::Lost(loss, first));
            }
            Output::Ended {
                owner,
                first,
                end,
                renewals,
            } => {
                if let Some((hold, held)) = self.holds.remove(&(owner, first)) {
                    if let Some(span) = hold.span().cloned() {
                        let ended = EndedHold {
                            span,
                            end,
                            renewals,
                        };
                        effects.seen.push(Seen::Ended(ended));
                    }
                    effects.deeds.push(Deed::End(hold, end, held));
                }
            }
            Output::GaveUp {
                key,
                owner,
                mode,
                was_held,
            } => {
                let given_up = GivenUp {
                    key,
                    owner,
                    mode,
                    was_held,
                };
                effects.seen.push(Seen::GaveUp(given_up));
            }
        }
    }
}
