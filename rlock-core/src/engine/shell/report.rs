//! Logs losses and other events of a client's locks, and undoes a step if a subscriber panics.

use std::{mem, vec};

use rlock_proto::{
    escape_control::escape_control,
    key::Key,
    lost::LostCause,
    machine::{Entered, Event, HoldEnd, Input, Loss, Owner, Reply, Revoked, Step},
    owner::OwnerId,
};
use tracing::field;

use super::{
    Shell,
    effects::{Effects, Seen},
};
use crate::{engine::hold_record::HoldRecord, wording::shown};

impl Shell {
    /// Logs what was seen. Returns the step, which is undone if a subscriber panics.
    pub(super) fn finish(&self, effects: &mut Effects) -> Option<Step> {
        if effects.seen.is_empty() {
            return effects.step.take();
        }
        let mut step = Unfinished(self, effects.step.take());
        self.report_all(mem::take(&mut effects.seen));
        step.1.take()
    }

    /// Logs the observations. If a subscriber panics, the background logs the rest.
    pub(super) fn report_all(&self, seen: Vec<Seen>) {
        let mut rest = Unreported(self, seen.into_iter());
        for seen in rest.1.by_ref() {
            self.report(seen);
        }
    }

    /// Leaves it to the background to log what was seen.
    pub(super) fn after_drop(&self, effects: Effects) {
        drop(Unreported(self, effects.seen.into_iter()));
    }

    /// Gives up a lock that another client revokes. Returns the effects.
    pub(crate) fn revoke(&self, key: Key, owner: Owner, event: Event, by: &str) -> Revoked {
        let input = Input::Event(key, Some(owner), event);
        let mut effects = Effects::default();
        self.apply(input, &mut effects, None);
        let mut rest = Unreported(self, effects.seen.into_iter());
        for seen in rest.1.by_ref() {
            match seen {
                Seen::Lost(loss, hold) => {
                    let cause = match event {
                        Event::Revoke { at_once: true, .. } => "another client took it by force",
                        _ => "another client revoked it",
                    };
                    self.write_loss(&loss, hold.as_deref(), |key, owner| {
                        tracing::warn!(%key, %owner, by, %cause, "lock lost");
                    });
                }
                other => self.report(other),
            }
        }
        effects.revoked.unwrap_or(Revoked::NotHeld)
    }

    fn write_loss(
        &self,
        loss: &Loss,
        hold: Option<&HoldRecord>,
        write: impl FnOnce(&str, OwnerId),
    ) {
        let key = escape_control(loss.key.shown());
        let owner = OwnerId::new(self.client, loss.owner, loss.mode);
        match hold {
            Some(hold) => hold.in_span(|| write(&key, owner)),
            None => write(&key, owner),
        }
    }

    /// Logs or closes what was seen.
    fn report(&self, seen: Seen) {
        match seen {
            Seen::Lost(loss, hold) => {
                let cause = loss.cause;
                // After a hand-off, the lease is shorter than the call asked for.
                let lease =
                    (cause == LostCause::Expired).then(|| field::display(shown(loss.lease)));
                self.write_loss(&loss, hold.as_deref(), |key, owner| {
                    tracing::warn!(%key, %owner, %cause, lease, "lock lost");
                });
            }
            Seen::Ended(ended) => ended.close(),
            Seen::GaveUp(given_up) => {
                let key = escape_control(given_up.key.shown());
                let owner = OwnerId::new(self.client, given_up.owner, given_up.mode);
                tracing::debug!(%key, %owner, was_held = given_up.was_held, "release given up");
                if given_up.was_held {
                    let given_up = &mut self.state().ledger.work.given_up;
                    given_up.0 += 1;
                    given_up.1.get_or_insert((key, owner));
                }
            }
            Seen::Other(write) => write(),
        }
    }
}

/// Observations that are not logged yet. Hands them to the background when dropped.
struct Unreported<'a>(&'a Shell, vec::IntoIter<Seen>);

impl Drop for Unreported<'_> {
    fn drop(&mut self) {
        if self.1.len() > 0 {
            self.0
                .state()
                .ledger
                .work
                .unreported
                .extend(self.1.by_ref());
            self.0.wake.notify_one();
        }
    }
}

/// A step that no call has taken yet. Undoes it when dropped.
struct Unfinished<'a>(&'a Shell, Option<Step>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        match self.1.take() {
            Some(Step::Send(request)) => self.0.on_drop(Input::Reply(request, Reply::None)),
            Some(Step::Entered(entered)) => {
                for Entered { entry, .. } in entered {
                    let (end, call) = (HoldEnd::Panicked, None);
                    self.0.on_drop(Input::Leave { entry, end, call });
                }
            }
            _ => {}
        }
    }
}
