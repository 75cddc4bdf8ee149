//! `release.lua`.

use super::{Held, Server, ServerBug};
use crate::words::{Effects, Holder, Release, Released};

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
        return Released::Done;
    }
    if !holds {
        leave_queue(server, ask, effects);
        return Released::NotHeld;
    }
    server.raise_fence(ask.key, ask.fence);
    if server.has(ServerBug::FenceReset) {
        server.lock(ask.key).fence = 0;
    }
    if ask.at_least > 0 {
        server.lock(ask.key).held = Some(Held {
            by: Holder::Kept,
            count: 1,
            until: server.now + ask.at_least,
        });
        server.notify_first(ask.key, ask.at_least, effects);
    } else {
        server.lock(ask.key).held = None;
        server.hand_off(ask.key, None, false, effects);
    }
    Released::Done
}

/// Removes an owner that only waited. The next waiter asks, and learns that it is the first.
fn leave_queue(server: &mut Server, ask: &Release, effects: &mut Effects) {
    let was_first = server.queue(ask.key).first() == Some(&ask.owner);
    let queue = &mut server.lock(ask.key).queue;
    queue.retain(|(owner, _)| *owner != ask.owner);
    if was_first {
        server.notify_first(ask.key, ask.at_least, effects);
    }
}
