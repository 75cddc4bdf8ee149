//! `extend.lua`.

use super::{Server, ServerBug};
use crate::words::{Block, Effects, Extend, Extended};

/// Advances the fence by at most the requested number of tokens, and never beyond the time. If the
/// fence is lost later, tokens restart above all granted ones.
pub(super) fn extend(server: &mut Server, ask: &Extend, effects: &mut Effects) -> Extended {
    if !server.holds(ask.key, ask.owner) {
        return Extended::NotHeld;
    }
    if server.is_invalid(ask.key) {
        return Extended::Refused;
    }
    if server.may_miss_grants(ask.known) {
        return Extended::Promoted;
    }
    let fence = server.fence(ask.key);
    let room = server.micros().saturating_sub(fence);
    // An advance by one would look like a release. The next grant restarts the tokens.
    let tokens = match ask.tokens.min(room) {
        0 | 1 => 0,
        _ if server.is_fence_lost(ask.key) || fence < ask.known.least => 0,
        tokens => tokens,
    };
    let advanced = fence + tokens;
    if !server.has(ServerBug::ExtensionForgotten) {
        server.lock(ask.key).fence = advanced;
    }
    if tokens > 0 {
        effects.extensions.push(Block {
            key: ask.key,
            owner: ask.owner,
            // The owner's block extends beyond the fence.
            first: fence + server.constants.block,
            last: advanced + (server.constants.block - 1),
        });
    }
    Extended::More {
        fence: advanced,
        tokens,
    }
}
