//! What clients do by themselves.

use super::{
    Action,
    ownership::{call, extend, give_up, leave, lose, renew},
};
use crate::{
    protocol::{
        ClientBug, Config, KEY, State,
        asked::Step,
        client::{Client, Turn, Why},
        network::{Id, Message, Request},
        ownership::Ownership,
    },
    words::{Acquire, Claim, Holder, Next, Owner, Release, Renewal},
};

/// The requests whose answers a client waits for.
pub(super) fn awaited(client: &Client) -> Vec<Id> {
    let asked = client.asked.iter().filter_map(|asked| asked.pending);
    let settling = client
        .settling
        .iter()
        .filter_map(|settling| settling.pending);
    let of_ownership = client.ownership.iter().flat_map(|ownership| {
        let renewals = ownership.renewals.iter().copied();
        let others = ownership.change.into_iter().chain(ownership.extension);
        others.chain(renewals)
    });
    let all = asked.chain(settling).chain(of_ownership);
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
    match *action {
        Action::Call(name) => {
            let client = state.client(name);
            client.to_come -= 1;
            if client.turn == Turn::Nobody {
                call(config, state, name);
            } else {
                client.waiting += 1;
            }
        }
        Action::Ask(name) => ask(config, state, name),
        Action::Take(name) => {
            let client = state.client(name);
            if let Some(asked) = &client.asked
                && let Step::Granted(given) = asked.step
            {
                client.begin(config, given);
                state.begin_hold(config, name, given.how);
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
        Action::Leave(name) => leave(config, state, name),
        Action::Extend(name) => extend(config, state, name),
        Action::EndRetention(name) => give_up(config, state, name, Why::RetainedEnough),
        Action::ShutDown(name) => {
            state.left.shut_downs -= 1;
            state.client(name).to_come = 0;
            give_up(config, state, name, Why::ShutDown);
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
            if let Some(ownership) = &mut state.client(name).ownership
                && let Some(hold) = &mut ownership.hold
            {
                hold.wrote = true;
                let (owner, token) = (ownership.owner, hold.token);
                state.network.send(Message::Write { owner, token });
            }
        }
        _ => {}
    }
}

/// An operator releases the lock in its holder's name.
pub(super) fn force(config: &Config, state: &mut State, told: bool) {
    let Some(entry) = state.server.inspect(KEY) else {
        return;
    };
    let Holder::Owner(owner) = entry.holder else {
        return;
    };
    let client = state.client(owner.client);
    let is_its = |own: &Ownership| own.owner == owner;
    let may_know = told && client.ownership.as_ref().is_some_and(is_its);
    // The holder awaits no reply to it.
    let id = client.request(0).id;
    let request = release(owner, entry.token, 0, None);
    state.network.send(Message::Request {
        from: owner.client,
        id,
        request,
    });
    if may_know {
        lose(config, state, owner.client, false);
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
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    ownership.change = Some(pending);
    ownership.entering = entering;
    let (owner, token) = (ownership.owner, ownership.tokens.fence);
    let entries = ownership.hold.as_ref().map_or(1, |hold| hold.entries);
    let request = if entering {
        acquire(owner, entries + 1, false)
    } else {
        release(owner, token, entries, None)
    };
    state.ask(name, pending.id, request);
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
    if let Some(ownership) = &mut client.ownership {
        if ownership.change.take_if(is_it).is_some() {
            ownership.dirty = true;
        }
        ownership.extension.take_if(is_it);
        ownership.renewals.retain(|pending| pending.id != id);
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
