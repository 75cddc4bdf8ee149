//! The start and the end of ownerships and holds.

use crate::{
    protocol::{
        ClientBug, Config, KEY, State,
        client::{Turn, Why},
        network::Request,
        ownership::How,
    },
    words::{Claim, Fence, Owner, Renew, Renewal},
};

/// Processes a caller that arrives when the turn is free.
pub(super) fn call(config: &Config, state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    client.turn = Turn::Holder;
    match &client.ownership {
        Some(ownership) if ownership.is_valid(now) => {
            state.begin_hold(config, name, How::Retained);
        }
        Some(_) => {
            end_ownership(config, state, name, Why::Ended, false);
            state.client(name).turn = Turn::Waiter;
        }
        None => client.turn = Turn::Waiter,
    }
}

/// Ends an entry. With the last one the hold ends: the ownership is handed over to the next local waiter,
/// retained, or released.
pub(super) fn leave(config: &Config, state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    if let Some(hold) = &mut ownership.hold
        && hold.entries > 1
    {
        hold.entries -= 1;
        ownership.dirty = true;
        return;
    }
    ownership.dirty &= !config.has(ClientBug::HandOverInDoubt);
    if client.waiting > 0 && ownership.may_hand_over(config, now) {
        client.waiting -= 1;
        state.begin_hold(config, name, How::HandedOver);
    } else if client.waiting == 0 && ownership.may_be_retained(config, now) {
        ownership.hold = None;
        ownership.retained_since = now;
        client.turn = Turn::Free;
    } else {
        end_ownership(config, state, name, Why::Ended, true);
    }
}

/// Processes the notification that another client waits. A retained ownership is released at once.
pub(super) fn wanted(config: &Config, state: &mut State, name: u8) {
    if let Some(ownership) = &mut state.client(name).ownership {
        ownership.wanted = true;
        let owner = ownership.owner;
        state.network.forget_wanted(owner);
    }
    if state.client(name).retains() {
        end_retention(config, state, name, Why::Wanted);
    }
}

/// Processes an operator's request for a release. A hold keeps the ownership until its end.
pub(super) fn revoke(config: &Config, state: &mut State, name: u8) {
    if state.client(name).retains() {
        end_retention(config, state, name, Why::Revoked);
    } else if let Some(ownership) = &mut state.client(name).ownership {
        ownership.lost = true;
    }
}

/// Releases a retained ownership.
pub(super) fn end_retention(config: &Config, state: &mut State, name: u8, why: Why) {
    let kept = state.client(name).ownership.clone();
    end_ownership(config, state, name, why, false);
    let client = state.client(name);
    if config.has(ClientBug::RetainedWhileReleased) {
        client.ownership = kept;
    }
    if config.has(ClientBug::RetainedAfterShutDown) && why == Why::ShutDown {
        client.releasing.pop();
    }
}

/// Ends an ownership and drops the replies to its requests.
fn end_ownership(config: &Config, state: &mut State, name: u8, why: Why, has_turn: bool) {
    let State {
        clients, network, ..
    } = state;
    let client = &mut clients[usize::from(name)];
    let Some(ownership) = &client.ownership else {
        return;
    };
    let requests = ownership.renewals.iter().copied();
    for pending in requests.chain(ownership.change) {
        network.forget_reply(name, pending.id);
    }
    network.forget_wanted(ownership.owner);
    if config.has(ClientBug::TokensOfReleased) && ownership.tokens.left() > 0 {
        client.spare = Some(ownership.tokens);
    }
    client.end_ownership(why, has_turn);
}

/// Renews an ownership, and asks for a new fence if `refences`.
pub(super) fn renew(state: &mut State, name: u8, refences: bool) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    ownership.renewals.push(pending);
    let mut fence = 0;
    if refences {
        ownership.fencing = Some(pending.id);
        ownership.asked_fence = now;
        fence = ownership.tokens.fence + 1;
    }
    let request = renewal(ownership.owner, fence);
    state.ask(name, pending.id, request);
}

pub(super) fn renewal(owner: Owner, fence: Fence) -> Request {
    let claim = Claim { key: KEY, owner };
    Request::Renew(Renew {
        renewals: vec![Renewal { claim, fence }],
        lease: Config::LEASE,
    })
}

/// Processes a loss and passes the turn. `releases`: the server may still have the ownership.
pub(super) fn lose(config: &Config, state: &mut State, name: u8, releases: bool) {
    let client = state.client(name);
    let has_hold = client.hold().is_some();
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    if config.has(ClientBug::TokensOfLost) && ownership.tokens.left() > 0 {
        client.spare = Some(ownership.tokens);
    }
    if config.has(ClientBug::LostHandedOver) && has_hold && client.waiting > 0 {
        ownership.lost = true;
        client.waiting -= 1;
        state.begin_hold(config, name, How::HandedOver);
        return;
    }
    end_ownership(config, state, name, Why::Ended, false);
    let client = state.client(name);
    if !releases {
        client.releasing.pop();
    }
    if has_hold {
        client.pass_turn(config.has(ClientBug::NeverLeavesQueue));
    }
}
