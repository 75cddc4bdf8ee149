//! A server serves its waiters in their order, makes none wait without a reason, and creates no lock for a renewal.

use rlock_model::requests::{Answer, Body};

use super::Rule;
use crate::{
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    servers::Server,
    store::{Acquired, Applied, Claim, ReleaseRequest},
};

const IN_ORDER: Rule = "no lock is granted before an earlier waiter has it";
const NOT_IN_VAIN: Rule = "no owner waits unless a holder or an earlier waiter keeps it off";
const ENOUGH_PERMITS: Rule =
    "no owner takes more permits than the largest number that an owner names";
const CREATES_NOTHING: Rule = "a renewal creates no lock";

/// A lock, its holders and its waiters.
struct Line {
    key: Key,
    holders: Vec<OwnerId>,
    waiters: Vec<OwnerId>,
}

/// The locks of a request before a server executes it.
pub(crate) struct Before(Vec<Line>);

impl Before {
    pub(crate) fn of(server: &Server, request: &Body, at: Time) -> Self {
        let line = |key: Key| Line {
            holders: server.owners(&key, at),
            waiters: server.state.queues.of(&key).collect(),
            key,
        };
        Self(request.keys().into_iter().map(line).collect())
    }

    /// Returns the rule that the server broke by executing the request, with the key of the lock.
    pub(crate) fn broken(
        &self,
        server: &Server,
        (request, reply): (&Body, &Answer),
        at: Time,
    ) -> Option<(Rule, Key)> {
        let is_renewal = matches!(reply, Answer::Renewed(_));
        for line in &self.0 {
            let mut granted = server.owners(&line.key, at);
            granted.retain(|owner| !line.holders.iter().any(|it| are_one(*it, *owner)));
            if is_renewal && !granted.is_empty() {
                return Some((CREATES_NOTHING, line.key.clone()));
            }
            if granted
                .iter()
                .any(|owner| line.is_overtaken(server, *owner))
            {
                return Some((IN_ORDER, line.key.clone()));
            }
            if !granted.is_empty() && line.has_too_many(server, &granted, request, at) {
                return Some((ENOUGH_PERMITS, line.key.clone()));
            }
        }
        let (key, owner) = first_waiter(server, request, reply)?;
        let is_kept_off = is_kept_off(server, &key, owner, at);
        (!is_kept_off).then_some((NOT_IN_VAIN, key))
    }
}

impl Line {
    /// Returns whether a waiter that came before this owner still waits.
    fn is_overtaken(&self, server: &Server, by: OwnerId) -> bool {
        let mut earlier = self.waiters.iter().take_while(|waiter| **waiter != by);
        earlier.any(|waiter| waiters(server, &self.key).any(|still| still == *waiter))
    }

    /// Returns whether the holders take more permits than the largest number that an owner names: one that has just become a
    /// holder, that waited or that asks.
    fn has_too_many(&self, server: &Server, granted: &[OwnerId], request: &Body, at: Time) -> bool {
        let holders = server.owners(&self.key, at);
        let asks = match request {
            Body::Acquire(request, _) => &request.claims[..],
            _ => &[],
        };
        let asks = asks.iter().map(|claim| claim.owner);
        let named = self.waiters.iter().chain(granted).copied().chain(asks);
        let most = named.filter_map(|owner| Some(owner.mode().permits()?.1));
        let taken: u32 = (holders.iter())
            .map(|owner| owner.mode().permits_taken())
            .sum();
        taken > most.max().unwrap_or(0)
    }
}

/// Returns the waiters whose clients are connected.
fn waiters<'a>(server: &'a Server, key: &'a Key) -> impl Iterator<Item = OwnerId> + 'a {
    let queue = server.state.queues.of(key);
    queue.filter(|owner| server.state.clients.contains_key(&owner.client()))
}

/// Returns the owner that is the next one for a lock after a request: the one that asked, or the first waiter after a release
/// or a downgrade.
fn first_waiter(server: &Server, request: &Body, reply: &Answer) -> Option<(Key, OwnerId)> {
    match (request, reply) {
        (Body::Acquire(request, _), Answer::Acquired(Acquired::Taken { claim, .. })) => {
            let Claim { key, owner } = &request.claims[*claim];
            let first = waiters(server, key).next();
            first
                .is_none_or(|first| first == *owner)
                .then(|| (key.clone(), *owner))
        }
        (Body::Release(..) | Body::Downgrade(..), Answer::Applied(Applied::Done)) => {
            // A release that keeps the lock makes the first waiter ask when its time has ended.
            let keeps = |release: &ReleaseRequest| !release.min_hold.is_zero();
            if matches!(request, Body::Release(release, _) if keeps(release)) {
                return None;
            }
            let key = request.keys().pop()?;
            let first = waiters(server, &key).next()?;
            Some((key, first))
        }
        _ => None,
    }
}

/// Returns whether the holders of a lock keep an owner from it.
fn is_kept_off(server: &Server, key: &Key, owner: OwnerId, at: Time) -> bool {
    let lock = server.state.locks.get(key);
    let holders = lock.into_iter().flat_map(|lock| &lock.holders);
    let mut modes = holders
        .filter(|holder| holder.expires > at && holder.owner != owner)
        .map(|holder| holder.owner.mode());
    match owner.mode() {
        LockMode::Shared => modes.any(|mode| mode != LockMode::Shared),
        LockMode::Permits { take, of } => {
            // A waiter goes by a larger number that one behind it names.
            let waiters: Vec<OwnerId> = server.state.queues.of(key).collect();
            let behind = waiters.iter().skip_while(|waiter| **waiter != owner);
            let named = behind.filter_map(|waiter| Some(waiter.mode().permits()?.1));
            let of = named.fold(of, u32::max);
            let modes: Vec<LockMode> = modes.collect();
            let taken: u32 = modes.iter().map(|mode| mode.permits_taken()).sum();
            modes.iter().any(|mode| mode.permits().is_none()) || taken + take > of
        }
        _ => modes.next().is_some(),
    }
}

/// Returns whether both are the same owner, which may have downgraded its lock.
fn are_one(one: OwnerId, other: OwnerId) -> bool {
    (one.client(), one.sequence()) == (other.client(), other.sequence())
}
