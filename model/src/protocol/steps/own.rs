//! What clients do by themselves.

use super::Action;
use crate::{
    protocol::{
        ClientBug, Config, KEY, State,
        client::{Client, Step, Turn},
        network::{Id, Message, Request},
    },
    words::{Acquire, Claim, Next, Owner, Release, Renewal},
};

/// The requests whose answers a client waits for.
pub(super) fn awaited(client: &Client) -> Vec<Id> {
    let asked = client.asked.iter().filter_map(|asked| asked.pending);
    let change = client.hold.iter().filter_map(|hold| hold.change);
    let settling = client
        .settling
        .iter()
        .filter_map(|settling| settling.pending);
    let renewals = client
        .hold
        .iter()
        .flat_map(|hold| hold.renewals.iter().copied());
    let all = asked.chain(change).chain(settling).chain(renewals);
    all.map(|pending| pending.id).collect()
}

fn acquire(owner: Owner, count: u8, waits: bool) -> Request {
    Request::Acquire(Acquire {
        claims: vec![Claim { key: KEY, owner }],
        lease: Config::LEASE,
        count,
        waits,
    })
}

fn release(owner: Owner, token: u64, count: u8, next: Option<Next>) -> Request {
    Request::Release(Release {
        key: KEY,
        owner,
        token,
        count,
        keep: 0,
        next,
    })
}

pub(super) fn act(config: &Config, state: &mut State, action: &Action) {
    let now = state.now();
    match *action {
        Action::Call(name) => {
            let client = state.client(name);
            client.to_come -= 1;
            if client.turn == Turn::Nobody {
                client.turn = Turn::Head;
            } else {
                client.waiting += 1;
            }
        }
        Action::Ask(name) => ask(config, state, name),
        Action::Take(name) => {
            let client = state.client(name);
            if let Some(asked) = client.asked.take()
                && let Step::Granted(given) = asked.step
            {
                client.begin(asked.owner, given, Config::LEASE, now);
            }
        }
        Action::GiveUp(name) => {
            state.left.gives_up -= 1;
            if let Some(asked) = &mut state.client(name).asked
                && let Some(pending) = asked.pending.take()
            {
                state.network.forget_reply(name, pending.id);
            }
            state
                .client(name)
                .pass_on(config.has(ClientBug::NoCompensation));
        }
        Action::Enter(name) => change(state, name, true),
        Action::Count(name) => change(state, name, false),
        Action::Leave(name) => {
            let client = state.client(name);
            if let Some(hold) = &mut client.hold {
                if hold.entries > 1 {
                    hold.entries -= 1;
                    hold.dirty = true;
                } else {
                    forget_renewals(state, name);
                    state.client(name).end_hold(true);
                }
            }
        }
        Action::Renew(name) => renew(state, name),
        Action::Notice(name) => {
            lose(config, state, name, true);
        }
        Action::GiveBack(name, at) => give_back(config, state, name, at),
        Action::Abandon(name, at) => {
            let client = state.client(name);
            let settling = client.settling.remove(at);
            if settling.has_turn {
                client.pass_on(false);
            }
        }
        Action::TimeOut(name, id) => time_out(config, state, name, id),
        Action::Write(name) => {
            if let Some(hold) = &mut state.client(name).hold {
                hold.wrote = true;
                let (owner, token) = (hold.owner, hold.token);
                state.network.send(Message::Write { owner, token });
            }
        }
        _ => {}
    }
}

fn ask(config: &Config, state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let asked = client.ask_for(config.has(ClientBug::OwnerReused));
    asked.begin(now);
    asked.pending = Some(pending);
    let request = acquire(asked.owner, 1, true);
    state.ask(name, pending.id, request);
}

/// Tells the server of one more entry, or of the count as it is.
fn change(state: &mut State, name: u8, entering: bool) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(hold) = &mut client.hold else {
        return;
    };
    hold.change = Some(pending);
    hold.entering = entering;
    let request = if entering {
        acquire(hold.owner, hold.entries + 1, false)
    } else {
        release(hold.owner, hold.token, hold.entries, None)
    };
    state.ask(name, pending.id, request);
}

fn renew(state: &mut State, name: u8) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(hold) = &mut client.hold else {
        return;
    };
    hold.renewals.push(pending);
    let owner = hold.owner;
    let renewal = Renewal {
        key: KEY,
        owner,
        lease: Config::LEASE,
    };
    state.ask(name, pending.id, Request::Renew(renewal));
}

/// Nobody waits for the answers to renewals of a hold that is over.
fn forget_renewals(state: &mut State, name: u8) {
    let Some(hold) = &state.clients[usize::from(name)].hold else {
        return;
    };
    let awaited: Vec<_> = hold.renewals.iter().copied().chain(hold.change).collect();
    for pending in awaited {
        state.network.forget_reply(name, pending.id);
    }
}

/// A hold is lost. The turn goes on first; `gives_back`: the server may still have it.
pub(super) fn lose(config: &Config, state: &mut State, name: u8, gives_back: bool) {
    forget_renewals(state, name);
    let client = state.client(name);
    client.end_hold(false);
    if !gives_back {
        client.settling.pop();
    }
    client.pass_on(config.has(ClientBug::NoCompensation));
}

fn give_back(config: &Config, state: &mut State, name: u8, at: usize) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let mut next = None;
    if client.settling[at].has_turn && client.waiting > 0 {
        let asked = client.ask_for(config.has(ClientBug::OwnerReused));
        asked.begin(now);
        next = Some(Next {
            owner: asked.owner,
            lease: Config::LEASE,
        });
    }
    let settling = &mut client.settling[at];
    settling.pending = Some(pending);
    settling.tried = true;
    let (owner, token) = (settling.owner, settling.token);
    state.ask(name, pending.id, release(owner, token, 0, next));
    if config.has(ClientBug::RenewsAfterRelease) {
        let pending = state.client(name).request(now);
        let renewal = Renewal {
            key: KEY,
            owner,
            lease: Config::LEASE,
        };
        state.ask(name, pending.id, Request::Renew(renewal));
    }
}

fn time_out(config: &Config, state: &mut State, name: u8, id: Id) {
    if state.network.carries(name, id) {
        state.left.time_outs -= 1;
    }
    state.network.forget_reply(name, id);
    let is_it = |pending: &mut crate::protocol::client::Pending| pending.id == id;
    let client = state.client(name);
    if let Some(asked) = &mut client.asked {
        asked.pending.take_if(is_it);
    }
    if let Some(hold) = &mut client.hold {
        if hold.change.take_if(is_it).is_some() {
            hold.dirty = true;
        }
        hold.renewals.retain(|pending| pending.id != id);
    }
    let mut settling = client.settling.iter_mut();
    if let Some(settling) = settling.find(|settling| settling.pending.is_some_and(|p| p.id == id)) {
        settling.pending = None;
        // Others may find out for themselves how the server is.
        if std::mem::take(&mut settling.has_turn) {
            client.pass_on(config.has(ClientBug::NoCompensation));
        }
    }
}
