//! `acquire.lua`.

use super::{Server, ServerBug};
use crate::words::{Acquire, Acquired, Effects, Fence, Fenced, Holder, Millis, Mode};

/// The state of a lock before the request.
#[derive(Clone, Copy)]
struct Seen {
    /// `None`: the lock is free.
    ttl: Option<Millis>,
    owned: bool,
}

pub(super) fn acquire(server: &mut Server, ask: &Acquire, effects: &mut Effects) -> Acquired {
    let mut seen = Vec::new();
    let mut taken = None;
    for (n, claim) in ask.claims.iter().enumerate() {
        let ttl = server.inspect(claim.key).map(|entry| entry.ttl);
        server.downgrade(claim.key, claim.owner);
        let owned = server.holds(claim.key, claim.owner);
        if ttl.is_none() && ask.count != 1 {
            return Acquired::NotOwner;
        }
        seen.push(Seen { ttl, owned });
        if !owned && !server.admits(claim.key, claim.owner) {
            taken = Some((n, server.rest(claim.key, claim.owner)));
            break;
        }
    }
    if let Some(taken) = taken {
        return refuse(server, ask, &seen, taken, false, effects);
    }
    let (mut fences, mut new) = (Vec::new(), Vec::new());
    for (n, (claim, seen_now)) in ask.claims.iter().zip(&seen).enumerate() {
        if !seen_now.owned && server.hand_off(claim.key, Some(claim.owner), ask.waits, effects) {
            let taken = (n, server.rest(claim.key, claim.owner));
            return refuse(server, ask, &seen, taken, true, effects);
        }
        let last = server.fence(claim.key);
        let is_new = !seen_now.owned || last == 0 || claim.owner.mode != Mode::Exclusive;
        let fence = if is_new {
            server.next_fence(claim.key)
        } else {
            last
        };
        fences.push(fence);
        new.extend(is_new.then_some(Fenced {
            key: claim.key,
            owner: claim.owner,
            fence,
        }));
    }
    effects.grants.extend(new);
    grant(server, ask, fences, effects)
}

fn refuse(
    server: &mut Server,
    ask: &Acquire,
    seen: &[Seen],
    (at, ttl): (usize, Millis),
    handed_off: bool,
    effects: &mut Effects,
) -> Acquired {
    if ask.claims.len() > 1 && ask.count == 1 {
        for (n, claim) in ask.claims.iter().enumerate() {
            server.downgrade(claim.key, claim.owner);
            let owned = server.holds(claim.key, claim.owner);
            if owned {
                server.remove(claim.key, claim.owner);
            }
            let was_free = n < at && seen[n].ttl.is_none();
            if owned || was_free && server.inspect(claim.key).is_none() {
                server.hand_off(claim.key, None, false, effects);
            }
        }
    }
    let claim = &ask.claims[at];
    let was_queued = server.queue(claim.key).contains(&claim.owner);
    if ask.waits {
        server.enqueue(claim.key, claim.owner);
    }
    let first = ask.waits && server.queue(claim.key).first() == Some(&claim.owner);
    // A caller that does not wait can get the lock at its next attempt.
    let ends_retention = first || !ask.waits && ask.count == 1;
    if ends_retention && !handed_off && !(was_queued && server.has(ServerBug::WantedOnce)) {
        server.notify_wanted(claim.key, ask.waits, effects);
    }
    Acquired::Taken {
        claim: at,
        ttl,
        queued: ask.waits,
        first,
        fences: ask
            .claims
            .iter()
            .map(|claim| server.fence(claim.key))
            .collect(),
    }
}

fn grant(
    server: &mut Server,
    ask: &Acquire,
    fences: Vec<Fence>,
    effects: &mut Effects,
) -> Acquired {
    let until = server.now + ask.lease;
    let adds = server.has(ServerBug::CountAdded);
    for claim in &ask.claims {
        let mut holders = server.lock(claim.key).held.iter();
        let held = holders.find(|held| held.by == Holder::Owner(claim.owner));
        let count = held.filter(|_| adds).map(|held| held.count + 1);
        let count = count.unwrap_or(ask.count);
        server.lock(claim.key).grant(claim.owner, count, until);
        if claim.owner.mode != Mode::Exclusive {
            // Others that waited share the lock.
            server.hand_off(claim.key, None, false, effects);
        }
    }
    let others_wait = ask
        .claims
        .iter()
        .any(|claim| !server.queue(claim.key).is_empty());
    Acquired::Granted {
        fences,
        others_wait,
    }
}
