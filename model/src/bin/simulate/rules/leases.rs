//! A client relies on a lock for no longer than the server, or a majority, keeps it with its fence.

use std::time::Duration;

use super::Rule;
use crate::{
    key::Key,
    lease::Time,
    machine::{Ownership, Phase, Slot},
    mode::LockMode,
    owner::OwnerId,
    plan::Part,
    world::World,
};

const COVERED: Rule = "a client relies on a lock for no longer than the server keeps it";
const FENCED: Rule = "the server keeps the fence of a held lock";

impl World {
    /// Checks that a client relies on a lock for no longer than the servers keep it.
    pub(super) fn audit_reliance(&mut self, client: usize, key: &Key) {
        let (now, state) = (self.now, &self.clients[client]);
        let time = state.clock.time(now);
        let owns = state.machine.slot(key).map_or(&[][..], Slot::ownerships);
        let is_valid =
            |own: &&Ownership| own.phase() == Phase::Held && own.valid_until(time).is_ok();
        for own in owns.iter().filter(is_valid).cloned().collect::<Vec<_>>() {
            self.audit_lease(client, key, &own, time);
        }
    }

    fn audit_lease(&mut self, client: usize, key: &Key, own: &Ownership, time: Time) {
        let (now, state) = (self.now, &self.clients[client]);
        let token = own.token().filter(|token| !self.is_excused(key, *token));
        // A client that stays at a replaced master breaks this rule before the one about holders.
        let is_certain = !self.plan.has(Part::ClockBeyondTheMargin)
            && !self.plan.stays
            && !self.is_failing_over();
        let Some(token) = token.filter(|_| is_certain) else {
            return;
        };
        let owner = OwnerId::new(state.id, own.owner, own.mode);
        let left = own.rest(time);
        let loses_fences = (self.plan).has_any(&[
            Part::FenceEvicted,
            Part::ServerRestartedEmpty,
            Part::OlderCopyTookOver,
            Part::ClockSetAhead,
            Part::ClockSetBack,
        ]);
        // Those who leave a shared lock decide how long its fence is kept.
        let is_exclusive =
            own.mode == LockMode::Exclusive && !loses_fences && self.is_always_renewed();
        let mut servers = self.servers.iter_mut();
        if is_exclusive && !servers.any(|server| server.keeps_fence(now, key)) {
            let what = format!("{key}: client {client} holds {token}");
            self.breaks(FENCED, what);
        }
        // A server may not know of a downgrade yet.
        let owners = [Some(owner), owner.before_downgrade()];
        let mut kept: Vec<Duration> = (self.servers.iter_mut())
            .map(|server| {
                let at = server.time(now);
                let mut owners = owners.iter().flatten();
                let left = owners.find_map(|owner| {
                    let holder = server.state.held_by(key, *owner, at)?;
                    Some(holder.expires.since(at))
                });
                left.unwrap_or_default()
            })
            .collect();
        kept.sort_unstable();
        // A majority has it for as long.
        let kept = kept[(kept.len() - 1) / 2];
        if left > kept {
            let what =
                format!("{key}: client {client} relies on {token} for {left:?}, kept for {kept:?}");
            self.breaks(COVERED, what);
        }
    }
}
