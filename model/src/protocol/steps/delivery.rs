//! Messages that arrive.

use super::ownership::{lose, wanted};
use crate::{
    protocol::{
        ClientBug, Config, KEY, State, Time,
        acquisition::Grant,
        client::{Client, Pending},
        network::{Id, Message, Reply, Request},
        ownership::{How, Ownership, Tokens},
        state::Rule,
    },
    words::{Acquired, Effects, Extended, HandOff, Notification, Released, Renewed},
};

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(state, from, id, &request),
        Message::Reply { to, id, reply } => read(config, state, to, id, &reply),
        Message::Notification(notification) => receive(config, state, notification),
        Message::Write { owner, token } => {
            let State {
                resource, blocks, ..
            } = state;
            resource.write(blocks, owner, token);
        }
    }
}

fn execute(state: &mut State, from: u8, id: Id, request: &Request) {
    let mut effects = Effects::default();
    let reply = match request {
        Request::Acquire(ask) => match state.server.acquire(ask, &mut effects) {
            Acquired::Promoted => promoted(state),
            reply => Reply::Acquired(reply),
        },
        Request::Release(ask) => Reply::Released(state.server.release(ask, &mut effects)),
        Request::Renew(renewal) => {
            let was_free = state.server.inspect(KEY).is_none();
            let held = state.server.renew(renewal)[0];
            if was_free && state.server.inspect(KEY).is_some() {
                state.broken = Some(Rule::RenewalsCreateNothing);
            }
            Reply::Renewed(held)
        }
        Request::Extend(ask) => match state.server.extend(ask, &mut effects) {
            Extended::Promoted => promoted(state),
            reply => Reply::Extended(reply),
        },
    };
    state.note(effects);
    // A reply that no client awaits changes nothing.
    if super::own::awaited(&state.clients[usize::from(from)]).contains(&id) {
        state.network.send(Message::Reply {
            to: from,
            id,
            reply,
        });
    }
}

fn promoted(state: &State) -> Reply {
    let (history, least) = state.server.start();
    Reply::Promoted(history, least)
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
        Reply::Promoted(history, least) => {
            client.promoted((*history, *least));
            if let Some(acquisition) = &mut client.acquisition
                && acquisition.pending.take_if(is_it).is_some()
            {
                acquisition.in_doubt = acquisition.was_in_doubt;
            }
            if let Some(ownership) = &mut client.ownership {
                ownership.extension.take_if(is_it);
            }
        }
        Reply::Released(reply) => {
            let change = client
                .ownership
                .as_mut()
                .and_then(|ownership| ownership.change.take_if(is_it));
            if change.is_some() {
                if matches!(reply, Released::Done(_)) {
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
        Reply::Extended(reply) => extended(config, state, name, id, *reply),
    }
}

fn acquired(config: &Config, state: &mut State, name: u8, pending: Pending, reply: &Acquired) {
    let now = state.now();
    let client = state.client(name);
    if matches!(reply, Acquired::Granted { .. }) {
        client.wrote(config, pending.sent);
    }
    let Some(acquisition) = &mut client.acquisition else {
        return;
    };
    match reply {
        Acquired::Granted {
            tokens,
            others_wait,
        } => {
            let from_reply = config.has(ClientBug::LeaseFromReply);
            let since = if from_reply { now } else { pending.sent };
            let (token, ttl) = (tokens[0], Config::LEASE);
            let grant = Grant {
                token,
                since,
                ttl,
                how: How::Replied,
            };
            acquisition.grant(grant);
            acquisition.wanted |= others_wait;
            if since + ttl > now {
                client.begin(config, grant);
                state.begin_hold(config, name, How::Replied);
            }
        }
        Acquired::Held { ttl, fences, .. } => {
            acquisition.in_doubt = acquisition.was_in_doubt;
            acquisition.end_grants(fences[0]);
            acquisition.queued(pending.sent, *ttl, now);
        }
        // In the explored worlds, only clients write to the server.
        Acquired::NotHeld | Acquired::Promoted | Acquired::Refused => {}
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
        Acquired::Held { .. } | Acquired::NotHeld | Acquired::Promoted | Acquired::Refused => {
            lose(config, state, name, false);
        }
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
    if reply.held {
        confirm(config, ownership, renewal.sent, now);
        let unread = [ClientBug::WantedUnread, ClientBug::WantedUnnoticed];
        if reply.wanted && !unread.into_iter().any(|bug| config.has(bug)) {
            wanted(config, state, name);
        }
    } else {
        lose(config, state, name, false);
    }
}

fn extended(config: &Config, state: &mut State, name: u8, id: Id, reply: Extended) {
    let Some(ownership) = &mut state.client(name).ownership else {
        return;
    };
    let is_it = |pending: &mut Pending| pending.id == id;
    if ownership.extension.take_if(is_it).is_none() {
        return;
    }
    match reply {
        Extended::More { fence, tokens } if tokens > 0 => {
            let more = Tokens::extension(fence, tokens, config.block);
            ownership.tokens.extend(more);
        }
        Extended::More { .. } | Extended::Promoted | Extended::Refused => {}
        Extended::NotHeld => lose(config, state, name, false),
    }
}

fn released(config: &Config, state: &mut State, name: u8, id: Id, reply: Released) {
    let now = state.now();
    let client = state.client(name);
    let mut releasing = client.releasing.iter();
    let Some(at) = releasing.position(|releasing| releasing.pending.is_some_and(|p| p.id == id))
    else {
        return;
    };
    let releasing = client.releasing.remove(at);
    if let Some(pending) = releasing.pending {
        client.released(config, pending.sent);
    }
    if !releasing.has_turn {
        return;
    }
    if let (Released::Done(hand_off), Some(pending)) = (reply, releasing.pending) {
        handed_off(client, hand_off, pending.sent, now);
    }
    client.pass_turn(config.has(ClientBug::NeverLeavesQueue));
}

fn handed_off(client: &mut Client, hand_off: HandOff, sent: Time, now: Time) {
    let Some(acquisition) = &mut client.acquisition else {
        return;
    };
    let ttl = Config::LEASE;
    match hand_off {
        HandOff::Granted(token) => {
            acquisition.grant(Grant {
                token,
                since: sent,
                ttl,
                how: How::GrantedByRelease,
            });
        }
        HandOff::Queued => acquisition.queued(sent, ttl, now),
        HandOff::Unknown => {}
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
            token,
            ttl,
            others_wait,
            ..
        } => {
            if token <= acquisition.past_fence && !config.has(ClientBug::LateNotificationAccepted) {
                return;
            }
            let from_message = config.has(ClientBug::LeaseFromNotification);
            acquisition.notified(token, ttl, from_message.then_some(now));
            acquisition.wanted |= others_wait;
        }
        Notification::Wanted { .. } => acquisition.wanted = true,
        Notification::Retry { after, .. } => acquisition.retry_after(after, now),
    }
}
