//! `release.lua`.

use super::{Held, Server, ServerBug};
use crate::words::{Effects, HandOff, Holder, Key, Next, Release, Released};

pub(super) fn release(server: &mut Server, ask: &Release, effects: &mut Effects) -> Released {
    let mut holds = server.holds(ask.key, ask.owner);
    if server.has(ServerBug::ReleaseOfOthers) {
        holds = server.inspect(ask.key).is_some();
    }
    if ask.count > 0 {
        if !holds {
            return Released::NotHeld;
        }
        if let Some(held) = &mut server.lock(ask.key).held {
            held.count = ask.count;
        }
        return Released::Done(HandOff::Unknown);
    }
    if !holds {
        return repeated(server, ask, effects);
    }
    if ask.at_least > 0 {
        let until = server.now + ask.at_least;
        let lock = server.lock(ask.key);
        lock.held = Some(Held {
            by: Holder::Kept,
            count: 1,
            until,
        });
        lock.fence += 1;
        server.notify_first(ask.key, ask.at_least, effects);
        return Released::Done(HandOff::Unknown);
    }
    server.lock(ask.key).held = None;
    Released::Done(hand_off_or_free(server, ask, effects))
}

/// Grants a lock that has just become free to the next waiter, or leaves it free.
fn hand_off_or_free(server: &mut Server, ask: &Release, effects: &mut Effects) -> HandOff {
    let first = server.dequeue(ask.key);
    if ask.next.is_none() && first.is_none() {
        server.lock(ask.key).fence += 1;
        return HandOff::Unknown;
    }
    let token = if server.has(ServerBug::TokenReused) {
        Some(server.fence(ask.key))
    } else {
        server.next_block(ask.key, ask.known)
    };
    let Some(token) = token else {
        return HandOff::Unknown;
    };
    let joins = ask.next.is_some();
    let handed_off = server.hand_off((ask.key, token), first, None, joins, effects);
    match ask.next {
        None => HandOff::Unknown,
        Some(next) if handed_off => {
            // It may have been the first in the queue, by a request that overtook this one.
            if next_has_lock(server, ask.key, next) {
                return HandOff::Granted(token);
            }
            server.enqueue(ask.key, next.owner);
            HandOff::Queued
        }
        Some(next) => {
            let until = server.now + next.lease;
            server.lock(ask.key).grant(next.owner, 1, until);
            let block = server.block(ask.key, next.owner, token);
            effects.grants.push(block);
            HandOff::Granted(token)
        }
    }
}

/// Returns whether the local waiter has the lock already, and gives it its lease.
fn next_has_lock(server: &mut Server, key: Key, next: Next) -> bool {
    let until = server.now + next.lease;
    match &mut server.lock(key).held {
        Some(held) if held.by == Holder::Owner(next.owner) => {
            held.until = held.until.max(until);
            true
        }
        _ => false,
    }
}

/// Removes an owner without a lock from the wait queue. A repeated request gets the same reply
/// again.
fn repeated(server: &mut Server, ask: &Release, effects: &mut Effects) -> Released {
    let fence = server.fence(ask.key);
    let is_invalid = server.is_invalid(ask.key);
    let was_first = server.queue(ask.key).first() == Some(&ask.owner);
    let queue = &mut server.lock(ask.key).queue;
    queue.retain(|(owner, _)| *owner != ask.owner);
    if was_first {
        server.notify_first(ask.key, 0, effects);
    }
    if let Some(next) = ask.next {
        if next_has_lock(server, ask.key, next) {
            return Released::Done(match fence {
                0 => HandOff::Unknown,
                token => HandOff::Granted(token),
            });
        }
        let queue = &server.lock(ask.key).queue;
        if queue.iter().any(|(owner, _)| *owner == next.owner) {
            return Released::Done(HandOff::Queued);
        }
    }
    match fence.checked_sub(ask.token) {
        _ if is_invalid => Released::MovedOn,
        None | Some(0) => Released::NotHeld,
        Some(1) => Released::Done(HandOff::Unknown),
        Some(_) => Released::MovedOn,
    }
}
