//! `release.lua`.

use super::{Held, Server, ServerBug};
use crate::words::{Effects, Holder, Mode, Release, Released};

pub(super) fn release(server: &mut Server, ask: &Release, effects: &mut Effects) -> Released {
    server.downgrade(ask.key, ask.owner);
    let mut holds = server.holds(ask.key, ask.owner);
    if server.has(ServerBug::ReleaseOfOthers) {
        holds = server.inspect(ask.key).is_some();
    }
    if ask.count > 0 {
        if !holds {
            return Released::NotHeld;
        }
        let mut holders = server.lock(ask.key).held.iter_mut();
        if let Some(held) = holders.find(|held| held.by == Holder::Owner(ask.owner)) {
            held.count = ask.count;
        }
        if ask.owner.mode == Mode::Shared && !server.has(ServerBug::DowngradeInSilence) {
            server.hand_off(ask.key, None, false, effects);
        }
        return Released::Done;
    }
    if !holds {
        if server.has(ServerBug::PermitFreedTwice) && matches!(ask.owner.mode, Mode::Permits(_)) {
            server.lock(ask.key).held.pop();
        }
        leave_queue(server, ask, effects);
        return Released::NotHeld;
    }
    server.raise_fence(ask.key, ask.fence);
    if server.has(ServerBug::FenceReset) {
        server.lock(ask.key).fence = 0;
    }
    server.remove(ask.key, ask.owner);
    if server.has(ServerBug::ReleaseOfOthers) {
        server.lock(ask.key).held.clear();
    }
    if ask.at_least > 0 {
        let until = server.now + ask.at_least;
        server.lock(ask.key).held.push(Held {
            by: Holder::Kept,
            mode: ask.owner.mode,
            count: 1,
            until,
        });
        server.ask_first(ask.key, ask.at_least, effects);
    } else {
        server.hand_off(ask.key, None, false, effects);
    }
    Released::Done
}

/// Removes an owner that only waited. The next waiter that is alive asks, and learns that it is the first.
fn leave_queue(server: &mut Server, ask: &Release, effects: &mut Effects) {
    let was_first = server.queue(ask.key).first() == Some(&ask.owner);
    let queue = &mut server.lock(ask.key).queue;
    queue.retain(|(owner, _)| *owner != ask.owner);
    if was_first {
        if server.inspect(ask.key).is_some() {
            // The waiters behind it may share the lock.
            server.hand_off(ask.key, None, false, effects);
        }
        server.ask_first(ask.key, ask.at_least, effects);
    }
}
