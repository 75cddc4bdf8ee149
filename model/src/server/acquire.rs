//! `acquire.lua`.

use super::{Server, ServerBug};
use crate::words::{Acquire, Acquired, Effects, Holder, Millis, Token};

/// The state of a lock before the grant.
#[derive(Clone, Copy)]
struct Seen {
    /// `None`: the lock is free.
    ttl: Option<Millis>,
    owned: bool,
    /// The fence: the first token of the block.
    token: Option<Token>,
    /// Whether the block was reserved for this request.
    fresh: bool,
}

/// The fencing token is invalid.
struct NoToken;

pub(super) fn acquire(server: &mut Server, ask: &Acquire, effects: &mut Effects) -> Acquired {
    if server.may_miss_grants(ask.known) {
        return Acquired::Promoted;
    }
    let mut seen = Vec::new();
    let mut taken = None;
    for (n, claim) in ask.claims.iter().enumerate() {
        let entry = server.inspect(claim.key);
        if entry.is_none() && ask.count != 1 {
            return Acquired::NotHeld;
        }
        let owned = server.holds(claim.key, claim.owner);
        if owned && server.is_invalid(claim.key) {
            return Acquired::Refused;
        }
        let fence = server.fence(claim.key);
        seen.push(Seen {
            ttl: entry.as_ref().map(|entry| entry.ttl),
            owned,
            token: (owned && fence > 0).then_some(fence),
            fresh: false,
        });
        if entry.is_some() && !owned {
            taken = Some((n, entry.map(|entry| entry.ttl)));
            break;
        }
    }
    let was_taken = taken.is_some();
    if taken.is_none() {
        match tokens(server, ask, &mut seen, effects) {
            Ok(handed_off) => taken = handed_off,
            Err(NoToken) => return Acquired::Refused,
        }
    }
    match taken {
        Some((n, ttl)) => refuse(server, ask, &seen, (n, ttl), !was_taken, effects),
        None => grant(server, ask, &seen, effects),
    }
}

/// Reserves a block for each lock, unless one of them is handed off to a waiter.
fn tokens(
    server: &mut Server,
    ask: &Acquire,
    seen: &mut [Seen],
    effects: &mut Effects,
) -> Result<Option<(usize, Option<Millis>)>, NoToken> {
    for (n, (claim, seen)) in ask.claims.iter().zip(seen).enumerate() {
        seen.fresh = seen.token.is_none();
        let token = seen
            .token
            .or_else(|| server.next_block(claim.key, ask.known));
        let token = token.ok_or(NoToken)?;
        seen.token = Some(token);
        if !seen.owned {
            let first = server.dequeue(claim.key);
            let (lock, requester) = ((claim.key, token), Some(claim.owner));
            if server.hand_off(lock, first, requester, ask.waits, effects) {
                return Ok(Some((n, Some(server.constants.grace))));
            }
        }
    }
    Ok(None)
}

fn refuse(
    server: &mut Server,
    ask: &Acquire,
    seen: &[Seen],
    (at, ttl): (usize, Option<Millis>),
    handed_off: bool,
    effects: &mut Effects,
) -> Acquired {
    if ask.claims.len() > 1 && ask.count == 1 {
        for (n, claim) in ask.claims.iter().enumerate() {
            if server.holds(claim.key, claim.owner) {
                server.lock(claim.key).held = None;
                if let Some(token) = server.next_block(claim.key, ask.known) {
                    let first = server.dequeue(claim.key);
                    server.hand_off((claim.key, token), first, None, false, effects);
                }
            } else if n < at && seen[n].ttl.is_none() {
                // Free locks stay free.
                if !server.queue(claim.key).is_empty()
                    && let Some(token) = seen[n]
                        .token
                        .or_else(|| server.next_block(claim.key, ask.known))
                {
                    let first = server.dequeue(claim.key);
                    server.hand_off((claim.key, token), first, None, false, effects);
                }
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
        server.notify_wanted(claim.key, effects);
    }
    Acquired::Held {
        claim: at,
        ttl: ttl.unwrap_or_default(),
        queued: ask.waits,
        first,
        fences: ask
            .claims
            .iter()
            .map(|claim| server.fence(claim.key))
            .collect(),
    }
}

fn grant(server: &mut Server, ask: &Acquire, seen: &[Seen], effects: &mut Effects) -> Acquired {
    let until = server.now + ask.lease;
    let adds = server.has(ServerBug::CountAdded);
    for (claim, seen) in ask.claims.iter().zip(seen) {
        match &mut server.lock(claim.key).held {
            Some(held) if held.by == Holder::Owner(claim.owner) => {
                held.count = if adds { held.count + 1 } else { ask.count };
                held.until = held.until.max(until);
            }
            _ => server.lock(claim.key).grant(claim.owner, ask.count, until),
        }
        if seen.fresh {
            let token = seen.token.unwrap_or_default();
            let block = server.block(claim.key, claim.owner, token);
            effects.grants.push(block);
        }
    }
    Acquired::Granted {
        tokens: seen.iter().filter_map(|seen| seen.token).collect(),
        others_wait: ask
            .claims
            .iter()
            .any(|claim| !server.queue(claim.key).is_empty()),
    }
}
