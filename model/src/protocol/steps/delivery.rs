//! Messages that arrive, and what operators do.

use super::calls::feed;
use crate::{
    machine::{Event, Failure, Input, Renew, Reply},
    protocol::{
        Config, State,
        client::{Asked, Awaited},
        config::time,
        fairness::Before,
        network::{self, Id, Message, Request},
        seen::Situation,
        words,
    },
    store::RenewalOutcome,
    words::{Acquire, Claim, Effects, Holder, Mode, Notification, Owner, Release},
};

/// A client outside the world.
const STRANGER: u8 = u8::MAX;

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(state, from, id, &request),
        Message::Reply { to, id, reply } => read(config, state, to, id, reply),
        Message::Notification(notification) => receive(config, state, notification),
        Message::Write { owner, token } => {
            let State {
                resource, tokens, ..
            } = state;
            resource.write(tokens, owner, token);
            if state.resource.saw_stale {
                state.seen.note(Situation::StaleWrite);
            }
        }
    }
}

fn execute(state: &mut State, from: u8, id: Id, request: &Request) {
    let before = Before::of(&state.server, request);
    let mut effects = Effects::default();
    let reply = match request {
        Request::Acquire(ask) => network::Reply::Acquired(state.server.acquire(ask, &mut effects)),
        Request::Release(ask) => network::Reply::Released(state.server.release(ask, &mut effects)),
        Request::Renew(ask) => network::Reply::Renewed(state.server.renew(ask, &mut effects)[0]),
    };
    before.check(state, request, &reply, &effects);
    state.note(effects);
    // A reply that no client awaits changes nothing.
    let mut clients = state.clients.iter().filter(|client| client.name == from);
    if clients.any(|client| client.awaited.iter().any(|one| one.id == id)) {
        let to = from;
        state.network.send(Message::Reply { to, id, reply });
    }
}

fn read(config: &Config, state: &mut State, name: u8, id: Id, reply: network::Reply) {
    let Some(awaited) = state.client(name).take_awaited(id) else {
        return;
    };
    match reply {
        network::Reply::Renewed(mut renewed) => {
            renewed.wanted &= config.renewals_report;
            let outcome = Some(words::outcome(renewed));
            renewal_ends(config, state, name, awaited, outcome);
        }
        reply => {
            let reply = words::reply(reply, time(awaited.sent));
            replied(config, state, name, awaited, reply);
        }
    }
}

/// Applies the reply to a request of a call or of the background.
fn replied(config: &Config, state: &mut State, name: u8, awaited: Awaited, reply: Reply) {
    let polled = state.client(name).polled(&awaited);
    let Asked::Request(request) = awaited.what else {
        return;
    };
    let input = Input::Reply(request, reply);
    feed(config, state, name, input, polled);
}

fn renewal_ends(
    config: &Config,
    state: &mut State,
    name: u8,
    awaited: Awaited,
    outcome: Option<RenewalOutcome>,
) {
    let Asked::Renewal(renew) = awaited.what else {
        return;
    };
    let Renew {
        key,
        owner,
        mode,
        lease,
        ..
    } = *renew;
    let event = Event::Renewed {
        mode,
        lease,
        sent_at: time(awaited.sent),
        outcome,
    };
    feed(
        config,
        state,
        name,
        Input::Event(key, Some(owner), event),
        None,
    );
}

/// Fails a request. `maybe_executed`: the server may still receive it.
pub(super) fn fails(config: &Config, state: &mut State, name: u8, id: Id, maybe_executed: bool) {
    let failure = Failure {
        maybe_executed,
        transient: true,
    };
    ends(config, state, name, id, Reply::Failed(failure));
}

/// Drops the future that awaits a reply.
pub(super) fn dropped(config: &Config, state: &mut State, name: u8, id: Id) {
    ends(config, state, name, id, Reply::None);
}

fn ends(config: &Config, state: &mut State, name: u8, id: Id, reply: Reply) {
    state.network.forget_reply(name, id);
    let Some(awaited) = state.client(name).take_awaited(id) else {
        return;
    };
    match awaited.what {
        Asked::Renewal(_) => renewal_ends(config, state, name, awaited, None),
        Asked::Request(_) => replied(config, state, name, awaited, reply),
    }
}

fn receive(config: &Config, state: &mut State, notification: Notification) {
    let owner = notification.owner();
    let key = words::key(notification.key());
    let event = words::event(notification);
    let input = Input::Event(key, Some(owner.sequence.into()), event);
    feed(config, state, owner.client, input, None);
}

/// Sends an attempt of another client, which finds the lock taken.
pub(super) fn try_in_vain(state: &mut State) {
    let owner = Owner {
        client: STRANGER,
        sequence: 0,
        mode: Mode::Exclusive,
    };
    let ask = Acquire {
        claims: vec![Claim { key: 0, owner }],
        lease: 1,
        count: 1,
        waits: false,
        floor: 0,
    };
    let mut effects = Effects::default();
    state.server.acquire(&ask, &mut effects);
    state.note(effects);
}

/// Asks the holder to release, or notifies it that its lock is taken (`at_once`).
pub(super) fn tell_holder(config: &Config, state: &mut State, at_once: bool) {
    let Some(owner) = holder(state) else {
        return;
    };
    let event = Event::Revoke {
        token: None,
        at_once,
    };
    let input = Input::Event(words::key(0), Some(owner.sequence.into()), event);
    feed(config, state, owner.client, input, None);
}

/// Returns the owner that has the first lock.
pub(super) fn holder(state: &State) -> Option<Owner> {
    let holders = state.server.inspect(0)?.holders.into_iter();
    let mut owners = holders.filter_map(|holder| match holder {
        Holder::Owner(owner) => Some(owner),
        Holder::Kept => None,
    });
    owners.next()
}

/// Releases the lock in its holder's name, as an operator.
pub(super) fn force(config: &Config, state: &mut State, notified: bool) {
    let Some(owner) = holder(state) else {
        return;
    };
    if notified {
        tell_holder(config, state, true);
    }
    let release = Release {
        key: 0,
        owner,
        fence: 0,
        count: 0,
        min_hold: 0,
    };
    state.network.send(Message::Request {
        from: STRANGER,
        id: Id::MAX,
        request: Request::Release(release),
    });
}
