//! What is held or retained is renewed in time, and nothing else is renewed.

use std::time::Duration;

use super::{About, Rule};
use crate::{
    lease::Time,
    machine::{Ownership, Phase, Renew},
    plan::{Part, WorldKind},
    world::World,
};

const RENEWED: Rule = "what is held or retained is renewed in time, and nothing else";

/// How long an ownership is retained while it waits for tokens.
const FOR_TOKENS: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn renews(&mut self, client: usize, renew: &Renew, now: Time) {
        let is_slow = self.may_stall();
        let is_renewed = self.is_always_renewed();
        let state = &mut self.clients[client];
        let phase = state
            .machine
            .own(&renew.key, renew.owner)
            .map(Ownership::phase);
        let note = state.notes.of(renew.owner);
        // If the hold before has tried a renewal, the next one follows after a pause.
        let is_first = std::mem::take(&mut note.is_brief) && note.attempts == 0;
        note.attempts += 1;
        // Another client may have extended the hold.
        note.terms.lease = note.terms.lease.max(renew.lease);
        let retained_until = note.ended_at + note.retain.max(FOR_TOKENS);
        // An entry may have confirmed the whole lease before.
        let is_short = renew.confirmed < renew.lease;
        let is_late = (is_first && is_short && is_renewed && !is_slow)
            && now > note.began + Duration::from_millis(30);
        let max_hold = note.terms.max_hold.map(|most| note.began + most);
        let broken = match phase {
            Some(_) if renew.lease.is_zero() => return,
            Some(Phase::Held) if max_hold.is_some_and(|until| now > until) => {
                "after its `max_hold`"
            }
            Some(Phase::Held) if self.plan.has(Part::NeverRenewed) => "without a watchdog",
            Some(Phase::Held) if is_late => "too late after the hand-off",
            Some(Phase::Retained | Phase::Ended) if !note.is_present && now > retained_until => {
                "after its retention"
            }
            Some(Phase::Held | Phase::Retained) => return,
            // The same input has ended it since, and releases it.
            Some(Phase::Ended) if note.releases == 0 => return,
            _ => "although no call has it",
        };
        let what = format!("{renew:?} is sent {broken}");
        self.breaks(RENEWED, what);
    }

    /// Checks that no retained lock ends with its lease in a run without faults.
    pub(super) fn keeps_retained(&mut self, client: usize, about: &About) {
        if about.expires && self.plan.world == WorldKind::Calm {
            let what = format!("client {client}: a retained lock ends with its lease");
            self.breaks(RENEWED, what);
        }
    }
}
