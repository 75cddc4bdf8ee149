//! How an ownership begins a hold, is kept, and ends.

use crate::{
    protocol::{
        ClientBug, Config, KEY, State,
        client::{Turn, Why},
        network::Request,
        ownership::How,
    },
    words::{Extend, Renewal},
};

/// A caller comes, and nobody is before it.
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
            state.client(name).turn = Turn::Head;
        }
        None => client.turn = Turn::Head,
    }
}

/// An entry ends. With the last one, the hold ends, and the ownership goes on to the next local waiter,
/// is retained, or is given back.
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
        client.turn = Turn::Nobody;
    } else {
        end_ownership(config, state, name, Why::Ended, true);
    }
}

/// Another client waits for what this one owns. What is retained is given up at once.
pub(super) fn wanted(config: &Config, state: &mut State, name: u8) {
    if let Some(ownership) = &mut state.client(name).ownership {
        ownership.wanted = true;
        let owner = ownership.owner;
        state.network.forget_wanted(owner);
    }
    if state.client(name).retains() {
        give_up(config, state, name, Why::Wanted);
    }
}

/// An operator asks for the release. A hold keeps the ownership until its end.
pub(super) fn revoke(config: &Config, state: &mut State, name: u8) {
    if state.client(name).retains() {
        give_up(config, state, name, Why::Revoked);
    } else if let Some(ownership) = &mut state.client(name).ownership {
        ownership.lost = true;
    }
}

/// Gives up what is retained.
pub(super) fn give_up(config: &Config, state: &mut State, name: u8, why: Why) {
    let kept = state.client(name).ownership.clone();
    end_ownership(config, state, name, why, false);
    let client = state.client(name);
    if config.has(ClientBug::RetainedWhileReleased) {
        client.ownership = kept;
    }
    if config.has(ClientBug::RetainedAfterShutDown) && why == Why::ShutDown {
        client.settling.pop();
    }
}

/// An ownership ends, and nobody waits for answers to requests for it any more.
fn end_ownership(config: &Config, state: &mut State, name: u8, why: Why, has_turn: bool) {
    let State {
        clients, network, ..
    } = state;
    let client = &mut clients[usize::from(name)];
    let Some(ownership) = &client.ownership else {
        return;
    };
    let requests = ownership.renewals.iter().copied();
    for pending in requests.chain(ownership.change).chain(ownership.extension) {
        network.forget_reply(name, pending.id);
    }
    network.forget_wanted(ownership.owner);
    if config.has(ClientBug::BlockOfReleased) && ownership.tokens.left() > 0 {
        client.spare = Some(ownership.tokens);
    }
    client.end_ownership(why, has_turn);
}

pub(super) fn renew(state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    ownership.renewals.push(pending);
    let owner = ownership.owner;
    let renewal = Renewal {
        key: KEY,
        owner,
        lease: Config::LEASE,
    };
    state.ask(name, pending.id, Request::Renew(renewal));
}

pub(super) fn extend(config: &Config, state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    ownership.extension = Some(pending);
    ownership.extended = now;
    let extend = Extend {
        key: KEY,
        owner: ownership.owner,
        // One alone is not given.
        tokens: config.block.max(2),
    };
    state.ask(name, pending.id, Request::Extend(extend));
}

/// An ownership is lost. The turn goes on first; `gives_back`: the server may still have it.
pub(super) fn lose(config: &Config, state: &mut State, name: u8, gives_back: bool) {
    let client = state.client(name);
    let has_hold = client.hold().is_some();
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    if config.has(ClientBug::BlockOfLost) && ownership.tokens.left() > 0 {
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
    if !gives_back {
        client.settling.pop();
    }
    if has_hold {
        client.pass_on(config.has(ClientBug::NoCompensation));
    }
}
