//! `release.lua`.

use super::{Held, Server, ServerBug};
use crate::words::{Effects, Holder, Onward, Release, Released};

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
        return Released::Done(Onward::Unknown);
    }
    if !holds {
        return again(server, ask);
    }
    if ask.keep > 0 {
        let until = server.now + ask.keep;
        let lock = server.lock(ask.key);
        lock.held = Some(Held {
            by: Holder::Kept,
            count: 1,
            until,
        });
        lock.fence += 1;
        server.tell_first(ask.key, ask.keep, effects);
        return Released::Done(Onward::Unknown);
    }
    server.lock(ask.key).held = None;
    Released::Done(pass_on(server, ask, effects))
}

/// Gives a lock that has just become free to whoever is next.
fn pass_on(server: &mut Server, ask: &Release, effects: &mut Effects) -> Onward {
    let first = server.first_in_line(ask.key);
    if ask.next.is_none() && first.is_none() {
        server.lock(ask.key).fence += 1;
        return Onward::Unknown;
    }
    let token = if server.has(ServerBug::TokenKept) {
        Some(server.fence(ask.key))
    } else {
        server.next_block(ask.key)
    };
    let Some(token) = token else {
        return Onward::Unknown;
    };
    let joins = ask.next.is_some();
    let handed_off = server.hand_off((ask.key, token), first, None, joins, effects);
    match ask.next {
        None => Onward::Unknown,
        Some(next) if handed_off => {
            server.stand_in_line(ask.key, next.owner);
            Onward::InLine
        }
        Some(next) => {
            let until = server.now + next.lease;
            server.lock(ask.key).give(next.owner, 1, until);
            let block = server.block(ask.key, next.owner, token);
            effects.grants.push(block);
            Onward::Granted(token)
        }
    }
}

/// An owner that holds nothing leaves the line; where an earlier copy of the request was done, the
/// answer is the same again.
fn again(server: &mut Server, ask: &Release) -> Released {
    let (now, fence) = (server.now, server.fence(ask.key));
    let is_spoilt = server.is_spoilt(ask.key);
    let lock = server.lock(ask.key);
    lock.queue.retain(|(owner, _)| *owner != ask.owner);
    if let Some(next) = ask.next {
        if let Some(held) = &mut lock.held
            && held.by == Holder::Owner(next.owner)
        {
            held.until = held.until.max(now + next.lease);
            return Released::Done(match fence {
                0 => Onward::Unknown,
                token => Onward::Granted(token),
            });
        }
        if lock.queue.iter().any(|(owner, _)| *owner == next.owner) {
            return Released::Done(Onward::InLine);
        }
    }
    match fence.checked_sub(ask.token) {
        _ if is_spoilt => Released::MovedOn,
        None | Some(0) => Released::NotHeld,
        Some(1) => Released::Done(Onward::Unknown),
        Some(_) => Released::MovedOn,
    }
}
