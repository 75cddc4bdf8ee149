//! Which holds a fault may have taken from their holders, and which faults a run has: the other rules excuse those.

use rlock_model::requests::Body;

use super::Hold;
use crate::{
    key::Key,
    lease::valid_until,
    owner::OwnerId,
    plan::{Effect, Part},
    store::TOKENS,
    world::{MS, World},
};

impl World {
    /// Notes that the present hold of a key may be lost, by a fault.
    pub(crate) fn voids(&mut self, key: &Key) {
        let fences = self.servers.iter().map(|server| server.largest_fence(key));
        let token = fences.max().unwrap_or_default() * TOKENS + TOKENS - 1;
        let (now, longest) = (
            self.now,
            u64::from(self.plan.longest_lease()) * MS + 2_000 * MS,
        );
        let until = if self.servers.len() > 1 {
            now + longest
        } else {
            now
        };
        let lock = self.lock(key);
        lock.void = lock.void.max(token).max(lock.tokens.largest());
        lock.void_until = lock.void_until.max(until);
        (lock.moved, lock.kept_until) = (lock.moved.max(now), 0);
    }

    pub(crate) fn voids_all(&mut self) {
        for key in self.keys.clone() {
            self.voids(&key);
        }
    }

    /// Notes that a server goes down, or has lost its data. On a quorum, that takes no lock from an owner that a majority of
    /// the other servers keeps for as long as its client relies on it.
    pub(crate) fn voids_lost(&mut self, server: usize) {
        for key in self.keys.clone() {
            let at = self.servers[server].time(self.now);
            let owners = self.servers[server].owners(&key, at);
            let are_kept = (owners.into_iter()).all(|owner| self.others_keep(server, &key, owner));
            if !are_kept || !self.is_quorum() {
                self.voids(&key);
            }
        }
    }

    fn others_keep(&mut self, server: usize, key: &Key, owner: OwnerId) -> bool {
        let (now, members) = (self.now, self.servers.len());
        // The reply to a renewal that it executed may be on its way. The client relies on the lock for as long then.
        let lost = &mut self.servers[server];
        let at = lost.time(now);
        let promised = lost.state.held_by(key, owner, at).map(|holder| {
            let kept = holder.expires.since(at);
            valid_until(at, kept).since(at)
        });
        let client = self.clients.iter().find(|client| owner.is_of(client.id));
        let left = client.and_then(|client| {
            let own = client.machine.own(key, owner.sequence())?;
            let rest = own.rest(client.clock.time(now));
            Some(rest.max(promised.unwrap_or_default()))
        });
        let others = self.servers.iter_mut().enumerate();
        let others = others.filter(|(other, state)| *other != server && state.down_until <= now);
        let keep = others.filter_map(|(_, state)| {
            let at = state.time(now);
            let holder = state.state.held_by(key, owner, at)?;
            (Some(holder.expires.since(at)) >= left).then_some(())
        });
        keep.count() > members / 2
    }

    /// Returns the keys of which a request may get the last fence again, or a smaller one: the server has forgotten that fence, its
    /// clock has stepped back since, and the client knew neither that fence nor a later one when it sent the request.
    pub(crate) fn unseen(&mut self, server: usize, body: &Body) -> Vec<Key> {
        let (Body::Acquire(_, floor) | Body::Release(_, floor)) = body else {
            return Vec::new();
        };
        let (now, server) = (self.now, &mut self.servers[server]);
        let keys = body.keys().into_iter();
        keys.filter(|key| *floor <= server.largest_fence(key) && server.may_shrink(now, key))
            .collect()
    }

    /// Notes that a hold begins, which is excused if a fault goes on, or if a clock is beyond the margin: then a client may
    /// rely on its lock for too long.
    pub(super) fn excuses(&mut self, key: &Key, hold: Hold) {
        let (now, is_beyond) = (self.now, self.plan.has(Part::ClockBeyondTheMargin));
        let lock = self.lock(key);
        lock.moved = lock.moved.max(now);
        if now < lock.void_until || is_beyond {
            lock.void = lock.void.max(hold.token);
        }
    }

    /// Returns whether a fault may have taken a lock from a hold with this token.
    pub(super) fn is_excused(&self, key: &Key, token: u64) -> bool {
        let lock = &self.locks[key];
        token <= lock.void || self.now < lock.void_until
    }

    /// Returns the largest token of a hold that a fault, or late renewals in a failover, may have lost.
    pub(super) fn void(&self, key: &Key) -> u64 {
        let lock = &self.locks[key];
        let renewed = if self.may_renew_late() {
            lock.renewed
        } else {
            0
        };
        lock.void.max(renewed)
    }

    /// Returns whether requests may fail in this run.
    pub(super) fn may_fail(&self) -> bool {
        self.is_quorum() || self.plan.may(Effect::Fails)
    }

    /// Returns whether a request of a quorum may be late or lost although its server is up.
    pub(super) fn may_be_lost(&self) -> bool {
        let calls = [Part::CallNotPolled, Part::ClientShutDown];
        let is_of_message = |part: &Part| part.may(Effect::Fails) && !calls.contains(part);
        Part::ALL
            .iter()
            .filter(|part| is_of_message(part))
            .any(|part| self.plan.has(*part))
    }

    /// Returns whether a renewal may be late.
    pub(super) fn may_stall(&self) -> bool {
        self.plan.may(Effect::Stalls) || self.plan.leases()[0] < 1_000
    }

    /// Returns whether every hold is renewed. Otherwise, a renewed entry may join a hold that was not renewed so far.
    pub(super) fn is_always_renewed(&self) -> bool {
        !self.plan.has_any(&[Part::Unrenewed, Part::NeverRenewed])
    }
}
