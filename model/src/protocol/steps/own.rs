//! Steps of the clients.

use super::{
    Action,
    ownership::{call, end_retention, leave, lose, renew, renewal},
};
use crate::{
    protocol::{
        ClientBug, Config, KEY, State,
        acquisition::Step,
        client::{Client, Turn, Why},
        network::{Id, Message, Request},
        ownership::Ownership,
    },
    words::{Acquire, Claim, Effects, Holder, Owner, Release},
};

/// Returns the requests that have no reply yet.
pub(super) fn awaited(client: &Client) -> Vec<Id> {
    let acquisition = client
        .acquisition
        .iter()
        .filter_map(|acquisition| acquisition.pending);
    let releasing = client
        .releasing
        .iter()
        .filter_map(|releasing| releasing.pending);
    let of_ownership = client.ownership.iter().flat_map(|ownership| {
        let renewals = ownership.renewals.iter().copied();
        ownership.change.into_iter().chain(renewals)
    });
    let all = acquisition.chain(releasing).chain(of_ownership);
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

fn release(owner: Owner, count: u8) -> Request {
    Request::Release(Release {
        key: KEY,
        owner,
        fence: 0,
        count,
        at_least: 0,
    })
}

pub(super) fn act(config: &Config, state: &mut State, action: &Action) {
    match *action {
        Action::Call(name) => {
            let client = state.client(name);
            client.to_come -= 1;
            if client.turn == Turn::Free {
                call(config, state, name);
            } else {
                client.waiting += 1;
            }
        }
        Action::Acquire(name) => ask(config, state, name),
        Action::BeginHold(name) => {
            let client = state.client(name);
            if let Some(acquisition) = &client.acquisition
                && let Step::Granted(grant) = acquisition.step
            {
                client.begin(config, grant);
                state.begin_hold(config, name, grant.how);
            }
        }
        Action::GiveUp(name) => {
            state.left.gives_up -= 1;
            if let Some(acquisition) = &mut state.client(name).acquisition
                && let Some(pending) = acquisition.pending.take()
            {
                state.network.forget_reply(name, pending.id);
            }
            state
                .client(name)
                .pass_turn(config.has(ClientBug::NeverLeavesQueue));
        }
        Action::Enter(name) => change(state, name, true),
        Action::Count(name) => change(state, name, false),
        Action::Leave(name) => leave(config, state, name),
        Action::EndRetention(name) => end_retention(config, state, name, Why::RetentionEnded),
        Action::ShutDown(name) => {
            state.left.shut_downs -= 1;
            state.client(name).to_come = 0;
            end_retention(config, state, name, Why::ShutDown);
        }
        Action::Renew(name) => renew(state, name, false),
        Action::RenewFence(name) => renew(state, name, true),
        Action::LoseLease(name) => {
            lose(config, state, name, true);
        }
        Action::Release(name, at) => send_release(config, state, name, at),
        Action::Abandon(name, at) => {
            let client = state.client(name);
            let releasing = client.releasing.remove(at);
            if releasing.has_turn {
                client.pass_turn(false);
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

/// Tries the taken lock once, for a caller of another client.
pub(super) fn try_in_vain(config: &Config, state: &mut State) {
    let stranger = Owner {
        client: u8::MAX,
        sequence: 0,
    };
    let mut effects = Effects::default();
    let Request::Acquire(ask) = acquire(stranger, 1, false) else {
        return;
    };
    state.server.acquire(&ask, &mut effects);
    state.note(config, effects);
}

/// Releases the lock for its holder, by an operator.
pub(super) fn force(config: &Config, state: &mut State, notified: bool) {
    let Some(entry) = state.server.inspect(KEY) else {
        return;
    };
    let Holder::Owner(owner) = entry.holder else {
        return;
    };
    let client = state.client(owner.client);
    let is_its = |own: &Ownership| own.owner == owner;
    let may_know = notified && client.ownership.as_ref().is_some_and(is_its);
    // The holder awaits no reply to it.
    let id = client.request(0).id;
    let request = release(owner, 0);
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
    let acquisition = client.acquisition(config.has(ClientBug::OwnerReused));
    acquisition.begin(now);
    acquisition.pending = Some(pending);
    let request = acquire(acquisition.owner, 1, true);
    state.ask(name, pending.id, request);
}

/// Sends one more entry, or the current count.
fn change(state: &mut State, name: u8, entering: bool) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let Some(ownership) = &mut client.ownership else {
        return;
    };
    ownership.change = Some(pending);
    ownership.entering = entering;
    let owner = ownership.owner;
    let entries = ownership.hold.as_ref().map_or(1, |hold| hold.entries);
    let request = if entering {
        acquire(owner, entries + 1, false)
    } else {
        release(owner, entries)
    };
    state.ask(name, pending.id, request);
}

/// Sends a release. The acquire of the next local waiter follows.
fn send_release(config: &Config, state: &mut State, name: u8, at: usize) {
    let now = state.now();
    let client = state.client(name);
    let pending = client.request(now);
    let releasing = &mut client.releasing[at];
    releasing.pending = Some(pending);
    releasing.tried = true;
    let (owner, has_turn) = (releasing.owner, releasing.has_turn);
    let has_next = has_turn && client.waiting > 0;
    state.ask(name, pending.id, release(owner, 0));
    if has_next {
        ask(config, state, name);
    }
    if config.has(ClientBug::RenewsAfterRelease) {
        let pending = state.client(name).request(now);
        state.ask(name, pending.id, renewal(owner, 0));
    }
}

fn time_out(config: &Config, state: &mut State, name: u8, id: Id) {
    if state.network.carries(name, id) {
        state.left.time_outs -= 1;
    }
    state.network.forget_reply(name, id);
    let is_it = |pending: &mut crate::protocol::client::Pending| pending.id == id;
    let client = state.client(name);
    if let Some(acquisition) = &mut client.acquisition {
        acquisition.pending.take_if(is_it);
    }
    if let Some(ownership) = &mut client.ownership {
        if ownership.change.take_if(is_it).is_some() {
            ownership.dirty = true;
        }
        ownership.fencing.take_if(|fencing| *fencing == id);
        ownership.renewals.retain(|pending| pending.id != id);
    }
    let mut releasing = client.releasing.iter_mut();
    if let Some(releasing) =
        releasing.find(|releasing| releasing.pending.is_some_and(|p| p.id == id))
    {
        if let Some(pending) = releasing.pending.take() {
            let is_valid = pending.sent < releasing.valid_until;
            releasing.in_doubt |= is_valid || config.has(ClientBug::DoneAfterLease);
        }
        // Other callers may retry on their own.
        if std::mem::take(&mut releasing.has_turn) {
            client.pass_turn(config.has(ClientBug::NeverLeavesQueue));
        }
    }
}
