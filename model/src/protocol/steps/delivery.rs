//! What arrives, and what it does.

use super::own::lose;
use crate::{
    protocol::{
        ClientBug, Config, KEY, State, Time,
        client::{Given, Hold, How, Pending},
        network::{Answer, Id, Message, Request},
        state::Rule,
    },
    words::{Acquired, Effects, News, Onward, Released},
};

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(state, from, id, &request),
        Message::Reply { to, id, answer } => read(config, state, to, id, &answer),
        Message::News(news) => hear(config, state, news),
        Message::Write { owner, token } => {
            let State {
                resource, grants, ..
            } = state;
            resource.write(grants, owner, token);
        }
    }
}

fn execute(state: &mut State, from: u8, id: Id, request: &Request) {
    let mut effects = Effects::default();
    let answer = match request {
        Request::Acquire(ask) => Answer::Acquired(state.server.acquire(ask, &mut effects)),
        Request::Release(ask) => Answer::Released(state.server.release(ask, &mut effects)),
        Request::Renew(renewal) => {
            let was_free = state.server.inspect(KEY).is_none();
            let held = state.server.renew(&[*renewal])[0].held;
            if was_free && state.server.inspect(KEY).is_some() {
                state.broken = Some(Rule::RenewalsCreateNothing);
            }
            Answer::Renewed(held)
        }
    };
    state.note(effects);
    // An answer that nobody waits for changes nothing.
    if super::own::awaited(&state.clients[usize::from(from)]).contains(&id) {
        state.network.send(Message::Reply {
            to: from,
            id,
            answer,
        });
    }
}

fn read(config: &Config, state: &mut State, name: u8, id: Id, answer: &Answer) {
    let is_it = |pending: &mut Pending| pending.id == id;
    let client = state.client(name);
    match answer {
        Answer::Acquired(answer) => {
            let asked = client
                .asked
                .as_mut()
                .and_then(|asked| asked.pending.take_if(is_it));
            if let Some(pending) = asked {
                answered(config, state, name, pending, answer);
                return;
            }
            let change = client
                .hold
                .as_mut()
                .and_then(|hold| hold.change.take_if(is_it));
            if let Some(pending) = change {
                entered(config, state, name, pending, answer);
            }
        }
        Answer::Released(answer) => {
            let change = client
                .hold
                .as_mut()
                .and_then(|hold| hold.change.take_if(is_it));
            if change.is_some() {
                if matches!(answer, Released::Done(_)) {
                    client.hold.iter_mut().for_each(|hold| hold.dirty = false);
                } else {
                    lose(config, state, name, false);
                }
                return;
            }
            released(config, state, name, id, *answer);
        }
        Answer::Renewed(held) => renewed(config, state, name, id, *held),
    }
}

fn answered(config: &Config, state: &mut State, name: u8, pending: Pending, answer: &Acquired) {
    let now = state.now();
    let client = state.client(name);
    let Some(asked) = &mut client.asked else {
        return;
    };
    match answer {
        Acquired::Granted { tokens, .. } => {
            let from_reply = config.has(ClientBug::LeaseFromReply);
            let since = if from_reply { now } else { pending.sent };
            let (token, ttl) = (tokens[0], Config::LEASE);
            let given = Given {
                token,
                since,
                ttl,
                how: How::Answered,
            };
            asked.given(given);
            if since + ttl > now {
                let owner = asked.owner;
                client.begin(owner, given, Config::LEASE, now);
            }
        }
        Acquired::Held { ttl, fences, .. } => {
            asked.in_doubt = asked.was_in_doubt;
            asked.is_past(fences[0]);
            asked.in_line(pending.sent, *ttl, now);
        }
        // In the explored worlds, only clients write to the server.
        Acquired::NotHeld | Acquired::Refused => {}
    }
}

fn entered(config: &Config, state: &mut State, name: u8, pending: Pending, answer: &Acquired) {
    let now = state.now();
    match answer {
        Acquired::Granted { .. } => {
            if let Some(hold) = &mut state.client(name).hold {
                hold.dirty = !confirm(config, hold, pending.sent, now);
                hold.entries += u8::from(!hold.dirty);
                hold.entered += u8::from(!hold.dirty);
                hold.entering = false;
            }
        }
        Acquired::Held { .. } | Acquired::NotHeld | Acquired::Refused => {
            lose(config, state, name, false);
        }
    }
}

/// The server confirmed the lease. A hold whose lease has ended is over, whatever comes late.
fn confirm(config: &Config, hold: &mut Hold, sent: Time, now: Time) -> bool {
    if now >= hold.valid_until && !config.has(ClientBug::RevivedByAnswer) {
        return false;
    }
    hold.valid_until = hold.valid_until.max(sent + Config::LEASE);
    hold.confirmed = hold.confirmed.max(sent);
    true
}

fn renewed(config: &Config, state: &mut State, name: u8, id: Id, is_held: bool) {
    let now = state.now();
    let Some(hold) = &mut state.client(name).hold else {
        return;
    };
    let Some(at) = hold.renewals.iter().position(|renewal| renewal.id == id) else {
        return;
    };
    let renewal = hold.renewals.remove(at);
    if is_held {
        confirm(config, hold, renewal.sent, now);
    } else if !config.has(ClientBug::LossIgnored) {
        lose(config, state, name, false);
    }
}

fn released(config: &Config, state: &mut State, name: u8, id: Id, answer: Released) {
    let now = state.now();
    let client = state.client(name);
    let mut settling = client.settling.iter();
    let Some(at) = settling.position(|settling| settling.pending.is_some_and(|p| p.id == id))
    else {
        return;
    };
    let settling = client.settling.remove(at);
    if !settling.has_turn {
        return;
    }
    if let (Released::Done(onward), Some(pending)) = (answer, settling.pending) {
        went_on(client, onward, pending.sent, now);
    }
    client.pass_on(config.has(ClientBug::NoCompensation));
}

fn went_on(client: &mut crate::protocol::client::Client, onward: Onward, sent: Time, now: Time) {
    match onward {
        Onward::Granted(_) if client.in_a_row > 0 => client.in_a_row -= 1,
        Onward::Granted(_) => client.arrived(),
        Onward::InLine | Onward::Unknown => {}
    }
    let Some(asked) = &mut client.asked else {
        return;
    };
    let ttl = Config::LEASE;
    match onward {
        Onward::Granted(token) => {
            asked.given(Given {
                token,
                since: sent,
                ttl,
                how: How::HandedOn,
            });
        }
        Onward::InLine => asked.in_line(sent, ttl, now),
        Onward::Unknown => {}
    }
}

fn hear(config: &Config, state: &mut State, news: News) {
    let now = state.now();
    let client = state.client(news.owner().client);
    let is_its = client
        .asked
        .as_ref()
        .is_some_and(|asked| asked.owner == news.owner());
    if !is_its {
        return;
    }
    if matches!(news, News::Granted { .. }) {
        client.arrived();
    }
    if let Some(asked) = &mut client.asked {
        match news {
            News::Granted { token, ttl, .. } => {
                if token <= asked.past && !config.has(ClientBug::LateMessageBelieved) {
                    return;
                }
                let from_message = config.has(ClientBug::LeaseFromMessage);
                asked.told(token, ttl, from_message.then_some(now));
            }
            News::Wanted { .. } => {}
            News::AskAgain { after, .. } => asked.look_after(after, now),
        }
    }
}
