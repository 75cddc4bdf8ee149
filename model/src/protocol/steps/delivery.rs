//! Steps of the network and of operators: requests, replies and notifications arrive, or are lost.

use super::effects::feed;
use crate::{
    lease::Time,
    machine::{Event, Failure, Input, Reply},
    mode::LockMode,
    owner::OwnerId,
    protocol::{
        Config, State,
        client::{Asked, Awaited},
        config::time,
        fairness::Before,
        network::{Id, Message},
        seen::Situation,
    },
    requests::{Answer, Body},
    server::{client_of, key, owner},
    store::{Claim, ReleaseRequest, RenewalOutcome},
};

/// A client outside the world.
const STRANGER: u8 = u8::MAX;

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(state, from, id, &request),
        Message::Reply { to, id, reply } => read(config, state, to, id, reply),
        Message::Notification(to, input) => feed(config, state, to, input, None),
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

fn execute(state: &mut State, from: u8, id: Id, request: &Body) {
    let before = Before::of(&state.server, request);
    let (reply, effects) = state.server.execute(request);
    before.check(state, request, &reply, &effects);
    state.note(effects);
    // A reply that no client awaits changes nothing.
    let mut clients = state.clients.iter().filter(|client| client.name == from);
    if clients.any(|client| client.awaited.iter().any(|one| one.id == id)) {
        // Its client counts from when it sent the request.
        let (to, reply) = (from, reply.since(Time::default()));
        state.network.send(Message::Reply { to, id, reply });
    }
}

fn read(config: &Config, state: &mut State, name: u8, id: Id, reply: Answer) {
    let Some(awaited) = state.client(name).take_awaited(id) else {
        return;
    };
    match reply.since(time(awaited.sent)) {
        Answer::Restored(_) => unreachable!("there is no quorum"),
        Answer::Renewed(mut renewed) => {
            if let RenewalOutcome::Held { wanted, .. } = &mut renewed.kept[0] {
                *wanted &= config.renewals_report;
            }
            renewal_ends(config, state, name, awaited, Some(renewed.kept[0]));
        }
        Answer::Acquired(reply) => replied(config, state, name, awaited, Reply::Acquired(reply)),
        Answer::Applied(reply) => replied(config, state, name, awaited, Reply::Applied(reply)),
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
    let input = Input::Renewed {
        renew: *renew,
        sent_at: time(awaited.sent),
        outcome,
    };
    feed(config, state, name, input, None);
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

/// Sends an attempt of another client, which finds the lock taken.
pub(super) fn try_in_vain(state: &mut State) {
    let (key, owner) = (key(0), owner(STRANGER, 0, LockMode::Exclusive));
    let (_, effects) = state
        .server
        .execute(&Body::attempt(Claim { key, owner }, false));
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
    let input = Input::Event(key(0), Some(owner.sequence()), event);
    feed(config, state, client_of(owner), input, None);
}

/// Returns the owner that has the first lock.
pub(super) fn holder(state: &State) -> Option<OwnerId> {
    let key = key(0);
    let owners = state.server.holders(&key).map(|holder| holder.owner);
    owners.filter(|owner| !owner.is_kept()).min()
}

/// Releases the lock in its holder's name, as an operator.
pub(super) fn force(config: &Config, state: &mut State, notified: bool) {
    let Some(owner) = holder(state) else {
        return;
    };
    if notified {
        tell_holder(config, state, true);
    }
    let key = key(0);
    state.network.send(Message::Request {
        from: STRANGER,
        id: Id::MAX,
        request: Body::Release(ReleaseRequest::of(&Claim { key, owner }), 0),
    });
}
