//! What follows from an input: noted under the mutex, and done as soon as it is free.

use std::{mem, sync::Arc, task::Waker};

use smallvec::SmallVec;

use super::{Shell, report::Seen, state::Begins};
use crate::{
    engine::{
        machine::{CallId, Request, Revoked, Step},
        shared_hold::SharedHold,
    },
    lease::Time,
    metrics,
    observe::HoldEnd,
};

/// What follows from an input.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) step: Option<Step>,
    pub(super) revoked: Option<Revoked>,
    pub(super) seen: Vec<Seen>,
    pub(super) actions: Actions,
}

/// What is done as soon as the mutex is free.
#[derive(Default)]
pub(super) struct Actions {
    /// The call that is polled. It may have to be woken already.
    pub(super) polled: Option<(CallId, Waker)>,
    pub(super) wakers: SmallVec<[Waker; 2]>,
    /// The holds that have ended or are lost.
    pub(super) ended: SmallVec<[(Arc<SharedHold>, HoldEnd, metrics::Held); 1]>,
    pub(super) requests: Vec<Request>,
    pub(super) has_work: bool,
}

impl Shell {
    /// Acts on what follows from an input, except for what is logged. Wakers and subscribers are foreign code.
    pub(super) fn act(&self, effects: &mut Effects, begins: Option<&mut Begins>, now: Time) {
        let actions = &mut effects.actions;
        for request in mem::take(&mut actions.requests) {
            let pending = request.is_release().then(metrics::PendingRelease::begin);
            self.state().work.requests.push((request, pending));
        }
        if !actions.wakers.is_empty() {
            mem::take(&mut actions.wakers)
                .into_iter()
                .for_each(Waker::wake);
        }
        // Before subscribers learn of the holds: one that panics ends them, so they have to be counted by then.
        if let (Some(Step::Entered(entered)), Some(begins)) = (&effects.step, begins) {
            let begun = entered.iter().filter(|entered| entered.began.is_some());
            begun.for_each(|_| begins.counters.holds());
        }
        for seen in &effects.seen {
            if let Seen::Lost(loss, _) = seen {
                metrics::lock(loss.site).lost(loss.cause);
            }
        }
        if !actions.ended.is_empty() {
            for (hold, end, held) in mem::take(&mut actions.ended) {
                held.ends(end, || now);
                hold.office.get().inspect(|office| office.ends());
                if end == HoldEnd::Lost {
                    hold.notify_loss();
                }
                hold.notify();
            }
        }
        if actions.has_work {
            self.wake.notify_one();
        }
    }
}
