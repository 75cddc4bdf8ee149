//! No call is refused without a reason.

use super::{About, Hold, Rule};
use crate::{
    clients::{Doing, Held, Life},
    key::Key,
    machine::{Refusal, Request, Step},
    mode::LockMode,
    plan::Part,
    world::{MS, World},
};

pub(crate) const NO_REFUSAL: Rule = "no call is refused without a reason";

/// How long a call that does not wait lets a release of its client come first.
const FOR_RELEASE: u64 = 900 * MS;

impl World {
    /// Checks why a call gets no lock, or a release has no reply.
    pub(crate) fn refused(&mut self, client: usize, task: usize, why: &Refusal) {
        let (state, may_fail) = (&self.clients[client], self.may_fail());
        let task = &state.tasks[task];
        let is_leaving = matches!(task.doing, Doing::Leaving(_));
        let is_early = self.now < task.not_before && !is_leaving;
        // A release fails if requests of the background did, a nested call if others of its hold did, and a call that has not
        // asked if those of the call before it in the line did.
        let is_behind = is_leaving || task.is_inside || task.asked == 0;
        let has_failed = (task.has_failed || is_behind) && may_fail;
        let is_wrong = match why {
            Refusal::Taken(..) => is_early,
            Refusal::Failed => !has_failed && !task.was_late,
            Refusal::Split => self.servers.len() == 1,
            Refusal::Lost(..) => !task.is_inside,
            Refusal::Draining => {
                let began_earlier = task.is_inside || task.since < state.drained;
                // The background of a client that was paused since gives up the calls that were not polled.
                let is_unpolled =
                    self.plan.has(Part::CallNotPolled) || state.paused_until > state.drained;
                began_earlier && !is_unpolled || state.life < Life::Draining
            }
            Refusal::Closed => state.life < Life::Closed,
            // Tasks nest calls in any modes. A downgrade may come before a nested call that waits for the count.
            Refusal::Upgrade(..) => {
                !task.is_inside || !self.shares() && !self.plan.has(Part::Downgrades)
            }
            Refusal::Nested(_) => true,
        };
        if is_wrong {
            let what = format!("client {client}: {why:?}, early: {is_early}");
            self.breaks(NO_REFUSAL, what);
        }
    }

    /// Checks that the request of a call that does not wait overtakes no release of its client.
    pub(super) fn follows_release(&mut self, client: usize, about: &About, request: &Request) {
        let state = &self.clients[client];
        let Some(task) = self.task_without_wait(client, request) else {
            return;
        };
        // The server knows nothing of a new owner.
        let is_released = |key: &Key| {
            let is_free = about.phases.iter().all(|(used, ..)| used != key);
            is_free && state.polled().any(|awaited| awaited.releases(key))
        };
        // After a pause, the release may have been given up.
        let is_early = self.now < task.since + FOR_RELEASE && !self.plan.has(Part::ClientPaused);
        let is_new = |owner| state.notes.get(owner).is_none_or(|note| !note.has_asked);
        let mut claims = request.claims.iter();
        if is_early && claims.any(|claim| is_new(claim.owner) && is_released(&claim.key)) {
            let what = format!("client {client}: an attempt overtakes a release: {request:?}");
            self.breaks(NO_REFUSAL, what);
        }
    }

    /// Checks the outcome of a downgrade. Returns whether the hold is a shared one now, which had this mode.
    pub(crate) fn downgraded(&mut self, client: usize, held: &Held, step: Option<&Step>) -> bool {
        let (key, owner) = (&held.entry.key, held.entry.owner);
        let state = &self.clients[client];
        let own = state.machine.own(key, owner);
        let is_valid = own.is_some_and(|own| own.valid_until(state.clock.time(self.now)).is_ok());
        // A nested call that is not polled any more still waits.
        let enters = state.is_entering() || self.plan.has(Part::CallNotPolled);
        let (used, entries) = own.map_or((held.mode, 0), |own| (own.used(), own.entries()));
        let is_right = match step {
            Some(Step::Downgraded) => is_valid && used != LockMode::Exclusive,
            Some(Step::Refused(Refusal::Lost(..))) => !is_valid,
            Some(Step::Refused(Refusal::Nested(_))) => {
                used == LockMode::Exclusive && (entries > 1 || enters)
            }
            _ => false,
        };
        if !is_right {
            let what = format!("{key}: client {client} downgrades {held:?}: {step:?}");
            self.breaks(NO_REFUSAL, what);
        }
        let is_done = held.mode == LockMode::Exclusive && step == Some(&Step::Downgraded);
        if is_done {
            let lock = self.lock(key);
            let of_hold = |hold: &&mut Hold| (hold.client, hold.owner) == (client, owner);
            for hold in lock.holds.iter_mut().filter(of_hold) {
                hold.mode = LockMode::Shared;
                lock.tokens.downgraded(hold);
            }
        }
        is_done
    }
}
