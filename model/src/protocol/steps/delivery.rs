//! Messages that arrive.

use super::ownership::{lose, wanted};
use crate::{
    protocol::{
        ClientBug, Config, KEY, State, Time,
        acquisition::Grant,
        client::{Pending, Turn},
        network::{Id, Message, Reply, Request},
        ownership::{How, Ownership},
        state::Rule,
    },
    words::{Acquired, Effects, Notification, Released, Renewed},
};

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(config, state, from, id, &request),
        Message::Reply { to, id, reply } => read(config, state, to, id, &reply),
        Message::Notification(notification) => receive(config, state, notification),
        Message::Write { owner, token } => {
            let State {
                resource, tokens, ..
            } = state;
            resource.write(tokens, owner, token);
        }
    }
}

fn execute(config: &Config, state: &mut State, from: u8, id: Id, request: &Request) {
    let mut effects = Effects::default();
    let reply = match request {
        Request::Acquire(ask) => Reply::Acquired(state.server.acquire(ask, &mut effects)),
        Request::Release(ask) => Reply::Released(state.server.release(ask, &mut effects)),
        Request::Renew(renew) => {
            let was_free = state.server.inspect(KEY).is_none();
            let held = state.server.renew(renew, &mut effects)[0];
            if was_free && state.server.inspect(KEY).is_some() {
                state.broken = Some(Rule::RenewalsCreateNothing);
            }
            Reply::Renewed(held)
        }
    };
    state.note(config, effects);
    // A reply that no client awaits changes nothing.
    if super::own::awaited(&state.clients[usize::from(from)]).contains(&id) {
        state.network.send(Message::Reply {
            to: from,
            id,
            reply,
        });
    }
}

fn read(config: &Config, state: &mut State, name: u8, id: Id, reply: &Reply) {
    let is_it = |pending: &mut Pending| pending.id == id;
    let client = state.client(name);
    match reply {
        Reply::Acquired(reply) => {
            let acquisition = client
                .acquisition
                .as_mut()
                .and_then(|acquisition| acquisition.pending.take_if(is_it));
            if let Some(pending) = acquisition {
                acquired(config, state, name, pending, reply);
                return;
            }
            let change = client
                .ownership
                .as_mut()
                .and_then(|ownership| ownership.change.take_if(is_it));
            if let Some(pending) = change {
                entered(config, state, name, pending, reply);
            }
        }
        Reply::Released(reply) => {
            let change = client
                .ownership
                .as_mut()
                .and_then(|ownership| ownership.change.take_if(is_it));
            if change.is_some() {
                if *reply == Released::Done {
                    let ownership = client.ownership.iter_mut();
                    ownership.for_each(|ownership| ownership.dirty = false);
                } else {
                    lose(config, state, name, false);
                }
                return;
            }
            released(config, state, name, id, *reply);
        }
        Reply::Renewed(reply) => renewed(config, state, name, id, *reply),
    }
}

fn acquired(config: &Config, state: &mut State, name: u8, pending: Pending, reply: &Acquired) {
    let now = state.now();
    let client = state.client(name);
    let has_turn = client.turn == Turn::Waiter;
    let Some(acquisition) = &mut client.acquisition else {
        return;
    };
    match reply {
        Acquired::Granted {
            fences,
            others_wait,
        } => {
            let from_reply = config.has(ClientBug::LeaseFromReply);
            let since = if from_reply { now } else { pending.sent };
            let (fence, ttl) = (fences[0], Config::LEASE);
            let how = if has_turn {
                How::Replied
            } else {
                How::WithRelease
            };
            let grant = Grant {
                fence,
                since,
                ttl,
                how,
            };
            acquisition.grant(grant);
            acquisition.wanted |= others_wait;
            if has_turn && since + ttl > now {
                client.begin(config, grant);
                state.begin_hold(config, name, How::Replied);
            }
        }
        Acquired::Taken { ttl, fences, .. } => {
            acquisition.in_doubt = acquisition.was_in_doubt;
            acquisition.end_grants(fences[0]);
            acquisition.queued(pending.sent, *ttl, now);
        }
        // In the explored worlds, only clients write to the server.
        Acquired::NotOwner => {}
    }
}

fn entered(config: &Config, state: &mut State, name: u8, pending: Pending, reply: &Acquired) {
    let now = state.now();
    match reply {
        Acquired::Granted { .. } => {
            if let Some(ownership) = &mut state.client(name).ownership {
                ownership.dirty = !confirm(config, ownership, pending.sent, now);
                ownership.entering = false;
                let entered = u8::from(!ownership.dirty);
                if let Some(hold) = &mut ownership.hold {
                    hold.entries += entered;
                    hold.entered += entered;
                }
            }
        }
        Acquired::Taken { .. } | Acquired::NotOwner => lose(config, state, name, false),
    }
}

/// Applies a confirmation of the lease. A late reply does not revive a lease that has ended.
fn confirm(config: &Config, ownership: &mut Ownership, sent: Time, now: Time) -> bool {
    if !ownership.is_valid(now) && !config.has(ClientBug::RevivedByReply) {
        return false;
    }
    ownership.valid_until = ownership.valid_until.max(sent + Config::LEASE);
    ownership.confirmed = ownership.confirmed.max(sent);
    true
}

fn renewed(config: &Config, state: &mut State, name: u8, id: Id, reply: Renewed) {
    let now = state.now();
    let Some(ownership) = &mut state.client(name).ownership else {
        return;
    };
    let mut renewals = ownership.renewals.iter();
    let Some(at) = renewals.position(|renewal| renewal.id == id) else {
        return;
    };
    let renewal = ownership.renewals.remove(at);
    ownership.fencing.take_if(|fencing| *fencing == id);
    if reply.held {
        ownership.tokens.renewed(reply.fence, config.tokens);
        confirm(config, ownership, renewal.sent, now);
        let unread = [ClientBug::WantedUnread, ClientBug::WantedUnnoticed];
        if reply.wanted && !unread.into_iter().any(|bug| config.has(bug)) {
            wanted(config, state, name);
        }
    } else {
        lose(config, state, name, false);
    }
}

fn released(config: &Config, state: &mut State, name: u8, id: Id, reply: Released) {
    let client = state.client(name);
    let mut releasing = client.releasing.iter();
    let Some(at) = releasing.position(|releasing| releasing.pending.is_some_and(|p| p.id == id))
    else {
        return;
    };
    let releasing = client.releasing.remove(at);
    if releasing.has_turn {
        client.pass_turn(config.has(ClientBug::NeverLeavesQueue));
    }
    // A lock is not lost within its lease, so an earlier copy released it.
    let counts_as_done = reply == Released::NotHeld && releasing.in_doubt;
    if counts_as_done && releasing.overtaken && !config.may_overtake() {
        state.broken = Some(Rule::NoReleaseAfterOthers);
    }
}

fn receive(config: &Config, state: &mut State, notification: Notification) {
    let now = state.now();
    let (name, owner) = (notification.owner().client, notification.owner());
    let client = state.client(name);
    let owns = client
        .ownership
        .as_ref()
        .is_some_and(|ownership| ownership.owner == owner);
    if owns && matches!(notification, Notification::Wanted { .. }) {
        wanted(config, state, name);
        return;
    }
    let Some(acquisition) = client
        .acquisition
        .as_mut()
        .filter(|acquisition| acquisition.owner == owner)
    else {
        return;
    };
    match notification {
        Notification::Granted {
            fence,
            ttl,
            others_wait,
            ..
        } => {
            if fence <= acquisition.past_fence && !config.has(ClientBug::LateNotificationAccepted) {
                return;
            }
            let from_message = config.has(ClientBug::LeaseFromNotification);
            acquisition.notified(fence, ttl, from_message.then_some(now));
            acquisition.wanted |= others_wait;
        }
        Notification::Wanted { .. } => acquisition.wanted = true,
        Notification::Retry { after, .. } => acquisition.retry_after(after, now),
    }
}
