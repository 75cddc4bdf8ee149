//! Checks what a server owes to waiters: none is overtaken, and none waits without a reason.

use super::{State, client::Life, state::Rule};
use crate::{
    key::Key,
    mode::LockMode,
    owner::OwnerId,
    requests::{Answer, Body},
    server::{Effects, Server, client_of, number},
    store::{Acquired, Applied, Claim},
};

/// The holders and the waiters of the locks of a request, before the server executes it.
pub(super) struct Before(Vec<(Key, Vec<OwnerId>, Vec<OwnerId>)>);

impl Before {
    pub(super) fn of(server: &Server, request: &Body) -> Self {
        let of_key = |key: Key| {
            let holders = server.holders(&key).map(|holder| holder.owner).collect();
            let queue = server.queue(&key).collect();
            (key, holders, queue)
        };
        Self(request.keys().into_iter().map(of_key).collect())
    }

    /// Notes the rules that the execution of the request broke.
    pub(super) fn check(
        &self,
        state: &mut State,
        request: &Body,
        reply: &Answer,
        effects: &Effects,
    ) {
        if self.is_overtaken(state, effects) {
            state.breaks(Rule::NoOvertaking);
        }
        if waits_in_vain(state, request, reply) {
            state.breaks(Rule::NoWaitWithoutReason);
        }
        if matches!(reply, Answer::Renewed(_)) && self.has_more_holders(&state.server) {
            state.breaks(Rule::RenewalsCreateNothing);
        }
    }

    /// Returns whether an owner got a lock before an earlier waiter that still waits.
    fn is_overtaken(&self, state: &State, effects: &Effects) -> bool {
        effects.grants.iter().any(|grant| {
            let mut before = self.0.iter().filter(|(key, ..)| number(key) == grant.key);
            before.any(|(key, holders, queue)| {
                let still_waits = |one| state.server.queue(key).any(|owner| owner == one);
                let mut earlier = queue.iter().take_while(|owner| **owner != grant.owner);
                let had_it = (holders.iter()).any(|holder| are_one(*holder, grant.owner));
                !had_it && earlier.any(|one| still_waits(*one) && is_there(state, *one))
            })
        })
    }

    fn has_more_holders(&self, server: &Server) -> bool {
        self.0.iter().any(|(key, holders, _)| {
            let is_new = |now| !holders.iter().any(|before| are_one(*before, now));
            server.holders(key).any(|holder| is_new(holder.owner))
        })
    }
}

/// Returns whether an owner waits that neither a holder nor an earlier waiter keeps off. After a release this concerns the
/// first waiter.
fn waits_in_vain(state: &State, request: &Body, reply: &Answer) -> bool {
    let first = |key| {
        let mut queue = state.server.queue(key);
        queue.find(|owner| is_there(state, *owner))
    };
    match (request, reply) {
        (Body::Acquire(ask, _), Answer::Acquired(Acquired::Taken { claim, .. })) => {
            let Claim { key, owner } = &ask.claims[*claim];
            let is_first = first(key).is_none_or(|first| first == *owner);
            is_first && !is_kept_off(&state.server, key, *owner)
        }
        (Body::Release(release, _), Answer::Applied(Applied::Done)) => {
            let key = &release.key;
            first(key).is_some_and(|first| !is_kept_off(&state.server, key, first))
        }
        _ => false,
    }
}

/// Returns whether holders whose leases last keep an owner from a lock.
fn is_kept_off(server: &Server, key: &Key, owner: OwnerId) -> bool {
    let live = server
        .holders(key)
        .filter(|holder| holder.expires > server.now());
    let mut modes = live.map(|holder| holder.owner.mode());
    match owner.mode() {
        LockMode::Shared => modes.any(|mode| mode != LockMode::Shared),
        LockMode::Permits(most) => {
            let (others, permits): (Vec<LockMode>, Vec<LockMode>) =
                modes.partition(|mode| !matches!(mode, LockMode::Permits(_)));
            !others.is_empty() || permits.len() >= most as usize
        }
        _ => modes.next().is_some(),
    }
}

fn is_there(state: &State, owner: OwnerId) -> bool {
    let client = state.clients.get(usize::from(client_of(owner)));
    client.is_some_and(|client| client.life < Life::Ended)
}

/// Returns whether both are the same owner, which may have downgraded its lock.
fn are_one(one: OwnerId, other: OwnerId) -> bool {
    let name = |owner: OwnerId| (!owner.is_kept()).then(|| (owner.client(), owner.sequence()));
    name(one) == name(other)
}
