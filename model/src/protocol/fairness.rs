//! What a server owes to waiters: none is overtaken, and none waits without a reason.

use super::{
    State,
    client::Life,
    network::{Reply, Request},
    state::Rule,
};
use crate::{
    server::Server,
    words::{Acquired, Effects, Holder, Key, Mode, Owner, Released},
};

/// The holders and the waiters of the locks of a request, before the server executes it.
pub(super) struct Before(Vec<(Key, Vec<Holder>, Vec<Owner>)>);

impl Before {
    pub(super) fn of(server: &Server, request: &Request) -> Self {
        let keys: Vec<Key> = match request {
            Request::Acquire(ask) => ask.claims.iter().map(|claim| claim.key).collect(),
            Request::Release(ask) => vec![ask.key],
            Request::Renew(renew) => renew.renewals.iter().map(|one| one.claim.key).collect(),
        };
        let holders = |key| server.holders(key).map(|(holder, ..)| holder).collect();
        let of_key = |key| (key, holders(key), server.queue(key));
        Self(keys.into_iter().map(of_key).collect())
    }

    /// Notes the rules that the execution of the request broke.
    pub(super) fn check(
        &self,
        state: &mut State,
        request: &Request,
        reply: &Reply,
        effects: &Effects,
    ) {
        if self.is_overtaken(state, effects) {
            state.breaks(Rule::NoOvertaking);
        }
        if waits_in_vain(state, request, reply) {
            state.breaks(Rule::NoWaitWithoutReason);
        }
        if matches!(reply, Reply::Renewed(_)) && self.has_more_holders(&state.server) {
            state.breaks(Rule::RenewalsCreateNothing);
        }
    }

    /// Returns whether an owner got a lock before an earlier waiter that still waits.
    fn is_overtaken(&self, state: &State, effects: &Effects) -> bool {
        effects.grants.iter().any(|grant| {
            let mut before = self.0.iter().filter(|(key, ..)| *key == grant.key);
            before.any(|(key, holders, queue)| {
                let still_waits = state.server.queue(*key);
                let mut earlier = queue.iter().take_while(|owner| **owner != grant.owner);
                let had_it = (holders.iter()).any(|holder| is_of(*holder, grant.owner));
                !had_it && earlier.any(|one| still_waits.contains(one) && is_there(state, *one))
            })
        })
    }

    fn has_more_holders(&self, server: &Server) -> bool {
        self.0.iter().any(|(key, holders, _)| {
            let is_new = |now| !holders.iter().any(|before| are_one(*before, now));
            server.holders(*key).any(|(holder, ..)| is_new(holder))
        })
    }
}

/// Returns whether an owner waits that neither a holder nor an earlier waiter keeps off. After a release this concerns the
/// first waiter.
fn waits_in_vain(state: &State, request: &Request, reply: &Reply) -> bool {
    let queue = |key| -> Vec<Owner> {
        let queue = state.server.queue(key).into_iter();
        queue.filter(|owner| is_there(state, *owner)).collect()
    };
    match (request, reply) {
        (Request::Acquire(ask), Reply::Acquired(Acquired::Taken { claim, .. })) => {
            let claim = ask.claims[*claim];
            let first = queue(claim.key).first().copied();
            let is_first = first.is_none_or(|first| first == claim.owner);
            is_first && !is_kept_off(&state.server, claim.key, claim.owner)
        }
        (Request::Release(release), Reply::Released(Released::Done)) => {
            let first = queue(release.key).first().copied();
            first.is_some_and(|first| !is_kept_off(&state.server, release.key, first))
        }
        _ => false,
    }
}

/// Returns whether holders whose leases last keep an owner from a lock.
fn is_kept_off(server: &Server, key: Key, owner: Owner) -> bool {
    let live = || server.holders(key).filter(|(.., is_live)| *is_live);
    match owner.mode {
        Mode::Exclusive => live().next().is_some(),
        Mode::Shared => live().any(|(_, mode, _)| mode != Mode::Shared),
        Mode::Permits(most) => {
            live().count() >= usize::from(most)
                || live().any(|(_, mode, _)| !matches!(mode, Mode::Permits(_)))
        }
    }
}

fn is_there(state: &State, owner: Owner) -> bool {
    let client = state.clients.get(usize::from(owner.client));
    client.is_some_and(|client| client.life < Life::Ended)
}

fn is_of(holder: Holder, owner: Owner) -> bool {
    are_one(holder, Holder::Owner(owner))
}

/// Returns whether both are the same owner, which may have downgraded its lock.
fn are_one(one: Holder, other: Holder) -> bool {
    let name = |holder| match holder {
        Holder::Owner(owner) => Some((owner.client, owner.sequence)),
        Holder::Kept => None,
    };
    name(one) == name(other)
}
