//! Carries out the effects of an input: wakes calls and bodies, and passes requests to the background.

use std::{mem, sync::Arc, task::Waker};

use rlock_proto::{
    few::Few,
    key::Key,
    lease::Time,
    machine::{CallId, HoldEnd, Loss, Owner, Request, Revoked, Step},
    mode::LockMode,
};

use super::{Shell, begins::Begins};
use crate::{engine::hold_record::HoldRecord, metrics, observe::EndedHold};

/// The call that an input comes from, and the effects of the input.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) call: Option<CallId>,
    /// The waker of the call, if it is polled and does not have to be woken already. If it has to wait, its waker is
    /// registered; otherwise it has none afterwards.
    pub(super) waker: Option<Waker>,
    pub(super) step: Option<Step>,
    pub(super) revoked: Option<Revoked>,
    pub(super) requests: Vec<Request>,
    pub(super) deeds: Few<Deed>,
    pub(super) seen: Vec<Seen>,
    /// Whether the background has to look for work.
    pub(super) has_work: bool,
    /// Whether the client is ending. Its end waits for changes by inputs.
    pub(super) is_ending: bool,
}

/// An effect that waits until the mutex is free, because wakers and recorders of metrics are foreign code.
pub(super) enum Deed {
    Wake(Waker),
    /// The hold has ended or is lost.
    End(Arc<HoldRecord>, HoldEnd, metrics::Held),
}

/// Something to log or to close outside of the mutex.
pub(super) enum Seen {
    Lost(Box<Loss>, Option<Arc<HoldRecord>>),
    Ended(EndedHold),
    GaveUp(GivenUp),
    Other(Box<dyn FnOnce() + Send>),
}

/// A lock whose release the client gave up.
pub(super) struct GivenUp {
    pub(super) key: Key,
    pub(super) owner: Owner,
    pub(super) mode: LockMode,
    pub(super) was_held: bool,
}

impl Shell {
    /// Carries out the effects of an input, except for the step of the call and the logs.
    pub(super) fn act(&self, effects: &mut Effects, begins: Option<&mut Begins>, now: Time) {
        if !effects.requests.is_empty() {
            for request in effects.requests.drain(..) {
                let pending = request.is_release().then(metrics::PendingRelease::begin);
                self.state().ledger.work.requests.push((request, pending));
            }
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
        if !effects.deeds.is_empty() {
            for deed in mem::take(&mut effects.deeds) {
                self.perform(deed, now);
            }
        }
        if effects.has_work {
            self.wake.notify_one();
        }
        if effects.is_ending {
            self.ended.notify_waiters();
        }
    }

    fn perform(&self, deed: Deed, now: Time) {
        match deed {
            Deed::Wake(waker) => waker.wake(),
            Deed::End(hold, end, counted) => {
                counted.ends(end, || now);
                hold.passenger().inspect(|passenger| passenger.ends());
                self.announcements.ends(&hold);
                if end == HoldEnd::Lost {
                    hold.notify_loss();
                }
            }
        }
    }
}
