//! What arrives, and what it does.

use super::ownership::{lose, wanted};
use crate::{
    protocol::{
        ClientBug, Config, KEY, State, Time,
        asked::Given,
        client::{Client, Pending},
        network::{Answer, Id, Message, Request},
        ownership::{How, Ownership, Tokens},
        state::Rule,
    },
    words::{Acquired, Effects, Extended, News, Onward, Released, Renewed},
};

pub(super) fn arrive(config: &Config, state: &mut State, message: Message) {
    match message {
        Message::Request { from, id, request } => execute(state, from, id, &request),
        Message::Reply { to, id, answer } => read(config, state, to, id, &answer),
        Message::News(news) => hear(config, state, news),
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
    let answer = match request {
        Request::Acquire(ask) => Answer::Acquired(state.server.acquire(ask, &mut effects)),
        Request::Release(ask) => Answer::Released(state.server.release(ask, &mut effects)),
        Request::Renew(renewal) => {
            let was_free = state.server.inspect(KEY).is_none();
            let held = state.server.renew(&[*renewal])[0];
            if was_free && state.server.inspect(KEY).is_some() {
                state.broken = Some(Rule::RenewalsCreateNothing);
            }
            Answer::Renewed(held)
        }
        Request::Extend(ask) => Answer::Extended(state.server.extend(ask, &mut effects)),
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
                .ownership
                .as_mut()
                .and_then(|ownership| ownership.change.take_if(is_it));
            if let Some(pending) = change {
                entered(config, state, name, pending, answer);
            }
        }
        Answer::Released(answer) => {
            let change = client
                .ownership
                .as_mut()
                .and_then(|ownership| ownership.change.take_if(is_it));
            if change.is_some() {
                if matches!(answer, Released::Done(_)) {
                    let ownership = client.ownership.iter_mut();
                    ownership.for_each(|ownership| ownership.dirty = false);
                } else {
                    lose(config, state, name, false);
                }
                return;
            }
            released(config, state, name, id, *answer);
        }
        Answer::Renewed(answer) => renewed(config, state, name, id, *answer),
        Answer::Extended(answer) => extended(config, state, name, id, *answer),
    }
}

fn answered(config: &Config, state: &mut State, name: u8, pending: Pending, answer: &Acquired) {
    let now = state.now();
    let client = state.client(name);
    let Some(asked) = &mut client.asked else {
        return;
    };
    match answer {
        Acquired::Granted {
            tokens,
            others_wait,
        } => {
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
            asked.wanted |= others_wait;
            if since + ttl > now {
                client.begin(config, given);
                state.begin_hold(config, name, How::Answered);
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
        Acquired::Held { .. } | Acquired::NotHeld | Acquired::Refused => {
            lose(config, state, name, false);
        }
    }
}

/// The server confirmed the lease. An ownership whose lease has ended is over, whatever comes late.
fn confirm(config: &Config, ownership: &mut Ownership, sent: Time, now: Time) -> bool {
    if !ownership.is_valid(now) && !config.has(ClientBug::RevivedByAnswer) {
        return false;
    }
    ownership.valid_until = ownership.valid_until.max(sent + Config::LEASE);
    ownership.confirmed = ownership.confirmed.max(sent);
    true
}

fn renewed(config: &Config, state: &mut State, name: u8, id: Id, answer: Renewed) {
    let now = state.now();
    let Some(ownership) = &mut state.client(name).ownership else {
        return;
    };
    let mut renewals = ownership.renewals.iter();
    let Some(at) = renewals.position(|renewal| renewal.id == id) else {
        return;
    };
    let renewal = ownership.renewals.remove(at);
    if answer.held {
        confirm(config, ownership, renewal.sent, now);
        let unread = [ClientBug::WantedUnread, ClientBug::WantedUnnoticed];
        if answer.wanted && !unread.into_iter().any(|bug| config.has(bug)) {
            wanted(config, state, name);
        }
    } else if !config.has(ClientBug::LossIgnored) {
        lose(config, state, name, false);
    }
}

fn extended(config: &Config, state: &mut State, name: u8, id: Id, answer: Extended) {
    let Some(ownership) = &mut state.client(name).ownership else {
        return;
    };
    let is_it = |pending: &mut Pending| pending.id == id;
    if ownership.extension.take_if(is_it).is_none() {
        return;
    }
    match answer {
        Extended::More { fence, tokens } if tokens > 0 => {
            let more = Tokens::extension(fence, tokens, config.block);
            ownership.tokens.extend(more);
        }
        Extended::More { .. } | Extended::Refused => {}
        Extended::NotHeld => lose(config, state, name, false),
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

fn went_on(client: &mut Client, onward: Onward, sent: Time, now: Time) {
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
    let (name, owner) = (news.owner().client, news.owner());
    let client = state.client(name);
    let owns = client
        .ownership
        .as_ref()
        .is_some_and(|ownership| ownership.owner == owner);
    if owns && matches!(news, News::Wanted { .. }) {
        wanted(config, state, name);
        return;
    }
    let Some(asked) = client.asked.as_mut().filter(|asked| asked.owner == owner) else {
        return;
    };
    match news {
        News::Granted {
            token,
            ttl,
            others_wait,
            ..
        } => {
            if token <= asked.past && !config.has(ClientBug::LateMessageBelieved) {
                return;
            }
            let from_message = config.has(ClientBug::LeaseFromMessage);
            asked.told(token, ttl, from_message.then_some(now));
            asked.wanted |= others_wait;
        }
        News::Wanted { .. } => asked.wanted = true,
        News::AskAgain { after, .. } => asked.look_after(after, now),
    }
}
