//! No hold is lost without a reason, and each loss is noticed in time and reported once.

use super::Rule;
use crate::{
    clients::Client,
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{Loss, Phase},
    plan::{Part, WorldKind},
    world::{MS, World},
};

const NO_FALSE_LOSS: Rule = "no hold is lost without a reason, and each loss is reported once";

/// How late a client may look at its schedule.
const LATEST_LOOK: u64 = 400 * MS;

impl World {
    pub(super) fn loses(&mut self, client: usize, loss: &Loss, now: Time) {
        self.stops_bodies(client, loss);
        self.moves(&loss.key, self.now);
        self.lock(&loss.key).kept_until = 0;
        let (is_late, is_repeated) = (self.may_stall(), self.plan.has(Part::RequestRepeated));
        // The client repeats a release at the successor if the former master has executed it.
        let is_released_twice = is_repeated || self.plan.has(Part::MasterReplaced);
        let renewed = self.is_always_renewed();
        let is_calm = self.plan.world == WorldKind::Calm;
        let Client { machine, notes, .. } = &mut self.clients[client];
        let own = machine.own(&loss.key, loss.owner);
        let is_held = own.is_some_and(|own| own.phase() == Phase::Held);
        let has_expired = own.is_some_and(|own| own.rest(now).is_zero());
        let note = notes.of(loss.owner);
        let was_lost = std::mem::replace(&mut note.is_lost, true);
        let (token, has_ended) = (note.token, loss.entries.is_empty());
        // The lease may end while the request is on its way.
        let is_past = has_expired || has_ended && now >= note.valid_until;
        let broken = if was_lost {
            "for the second time"
        } else if note.is_present == has_ended {
            "although no hold has it"
        } else if has_ended && note.is_released && !is_released_twice {
            "although it was released"
        } else if has_ended && note.valid_until == Time::default() {
            "although its lease had ended before the release"
        } else if is_held && !matches!(loss.cause, LostCause::MaxHold | LostCause::Revoked) {
            "and keeps the turn"
        } else if loss.cause == LostCause::Expired && !has_ended && now < note.confirmed_until {
            "before the end that the store has confirmed"
        } else if loss.cause == LostCause::Expired && renewed && note.attempts < 2 && !is_late {
            "after one attempt at a renewal"
        } else if loss.cause == LostCause::Expired && renewed && is_calm {
            "without a fault"
        } else if loss.cause == LostCause::Removed
            && !is_past
            && !is_repeated
            && token > self.void(&loss.key)
        {
            "and no fault took it"
        } else {
            return;
        };
        let what = format!("client {client}: {loss:?} {broken}");
        self.breaks(NO_FALSE_LOSS, what);
    }

    /// Checks the end of an entry. A loss that its call learns was told before.
    pub(crate) fn has_left(&mut self, client: usize, task: usize, outcome: Result<(), LostCause>) {
        let shares = self.shares();
        let state = &mut self.clients[client];
        let Some((key, owner, releases)) = state.tasks[task].leaves.take() else {
            return;
        };
        if shares {
            return;
        }
        let note = state.notes.get(owner).cloned().unwrap_or_default();
        let is_within =
            releases && note.releases == 1 && state.clock.time(self.now) < note.valid_until;
        let is_hidden = is_within && !note.is_released && !note.is_lost;
        match outcome {
            Ok(())
                if is_hidden
                    && self.servers.len() == 1
                    && !self.plan.has(Part::RequestRepeated) =>
            {
                let what = format!("{key}: a release of client {client} hides a loss");
                self.breaks(NO_FALSE_LOSS, what);
            }
            Err(cause) if !note.is_lost && cause != LostCause::Closed => {
                let what = format!("{key}: a release of client {client} finds a loss: {cause:?}");
                self.breaks(NO_FALSE_LOSS, what);
            }
            _ => {}
        }
    }

    /// Checks that a hold which has ended by the clock was reported as lost.
    pub(super) fn notices_loss(&mut self, client: usize, key: &Key) {
        // The client may look at its schedule just now.
        let past = self.now.saturating_sub(LATEST_LOOK);
        let state = &self.clients[client];
        let own = state.current(key).filter(|_| past > state.clock.born);
        let is_unnoticed = own.is_some_and(|own| {
            let is_held = own.phase() == Phase::Held && own.lost().is_none();
            is_held && own.valid_until(state.clock.time(past)).is_err()
        });
        if is_unnoticed && !self.plan.has(Part::ClientPaused) {
            let what = format!("{key}: client {client} has not noticed a loss");
            self.breaks(NO_FALSE_LOSS, what);
        }
    }
}
