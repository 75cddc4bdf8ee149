//! What always holds, and what is to be seen at least once.

use stateright::Property;

use super::{
    Config, KEY, Protocol, State,
    client::{Client, How},
    network::{Message, Request},
    state::Rule,
};
use crate::words::Holder;

type P = Property<Protocol>;

/// The properties of one configuration.
pub(super) fn of(config: &Config) -> Vec<P> {
    let faults = &config.faults;
    let mut all = vec![
        P::always("tokens grow with every grant", |_, state| {
            state.broken != Some(Rule::TokensGrow)
        }),
        P::always("a renewal creates nothing", |_, state| {
            state.broken != Some(Rule::RenewalsCreateNothing)
        }),
        P::always("no hold is renewed after its release", |_, state| {
            state.broken != Some(Rule::NoRenewalAfterRelease)
        }),
        P::always(
            "a resource that checks tokens accepts no stale write",
            |_, state| !state.resource.accepted_stale,
        ),
        P::always(
            "when all are dead, the lock is free after a lease",
            |_, state| state.frees_itself(),
        ),
        P::sometimes("somebody has the lock", |_, state| {
            state.believers().count() == 1
        }),
        P::sometimes("the world comes to its end", |model, state| {
            state.now() == model.config.end
        }),
    ];
    if faults.restarts == 0 {
        all.push(P::always(
            "at most one holder believes that it has the lock",
            |_, state| state.believers().count() <= 1,
        ));
        all.push(P::always(
            "nobody else is given a lock that its holder relies on",
            |_, state| {
                state.believers().all(|client| {
                    let hold = client.hold.as_ref();
                    hold.is_none_or(|hold| !state.is_overtaken(hold.owner, hold.token))
                })
            },
        ));
    } else {
        all.push(P::always(
            "after a server forgot, two believe for a lease at most",
            |_, state| {
                let mut holds = state.believers().filter_map(|client| client.hold.as_ref());
                holds.all(|hold| {
                    let since = hold.overtaken.unwrap_or(hold.valid_until);
                    hold.valid_until <= since + Config::LEASE
                })
            },
        ));
        all.push(P::sometimes(
            "a server that forgets lets two believe",
            |_, state| state.believers().count() > 1,
        ));
    }
    served(config, &mut all);
    ways(config, &mut all);
    got_over(config, &mut all);
    all
}

/// What holds where everybody does his part in time.
fn served(config: &Config, all: &mut Vec<P>) {
    if config.prompt {
        all.push(P::always(
            "whoever waits is served before the end",
            |model, state| {
                state.now() < model.config.end || state.clients.iter().all(Client::is_idle)
            },
        ));
    }
    if config.is_tidy() {
        all.push(P::always(
            "nothing is left behind when all have gone",
            |_, state| {
                !state.is_quiet()
                    || state.server.inspect(KEY).is_none() && state.server.line(KEY).is_empty()
            },
        ));
        all.push(P::always("the server counts the entries", |_, state| {
            state
                .clients
                .iter()
                .all(|client| counts_entries(state, client))
        }));
    }
}

fn counts_entries(state: &State, client: &Client) -> bool {
    let Some(hold) = client
        .hold
        .as_ref()
        .filter(|hold| hold.change.is_none() && !hold.dirty)
    else {
        return true;
    };
    let is_changing = |message: &Message| match message {
        Message::Request { from, request, .. } => {
            *from == client.name && !matches!(request, Request::Renew(_))
        }
        _ => false,
    };
    let entry = state.server.inspect(KEY);
    let own = entry.filter(|entry| entry.holder == Holder::Owner(hold.owner));
    own.is_none_or(|entry| entry.count == hold.entries) || state.network.messages().any(is_changing)
}

/// Each way to a lock is taken.
fn ways(config: &Config, all: &mut Vec<P>) {
    fn came(state: &State, how: How) -> bool {
        state
            .believers()
            .any(|client| client.hold.as_ref().is_some_and(|hold| hold.how == how))
    }
    if config.clients > 1 {
        all.push(P::sometimes(
            "a lock is handed to another client",
            |_, state| came(state, How::Told),
        ));
    }
    if config.callers > 1 {
        all.push(P::sometimes(
            "a lock is handed on within a client",
            |_, state| came(state, How::HandedOn),
        ));
    }
    if config.entries > 1 {
        all.push(P::sometimes("a holder enters once more", |_, state| {
            state
                .server
                .inspect(KEY)
                .is_some_and(|entry| entry.count > 1)
        }));
    }
    if config.renews && config.end > 1 + Config::LEASE {
        all.push(P::sometimes(
            "a lock is held for longer than a lease",
            |_, state| {
                state.believers().any(|client| {
                    let hold = client.hold.as_ref();
                    hold.is_some_and(|hold| state.now() > hold.began + Config::LEASE)
                })
            },
        ));
    }
    if !config.prompt && config.end > 1 + Config::LEASE {
        all.push(P::sometimes(
            "a client sleeps through its lease",
            |_, state| {
                let asleep = |client: &Client| {
                    client
                        .hold
                        .as_ref()
                        .is_some_and(|hold| state.now() > hold.valid_until)
                };
                state.clients.iter().any(asleep) && state.believers().next().is_some()
            },
        ));
        if config.writes {
            all.push(P::sometimes("a stale write arrives", |_, state| {
                state.resource.saw_stale
            }));
        }
    }
}

/// Each fault happens, and somebody has the lock afterwards.
fn got_over(config: &Config, all: &mut Vec<P>) {
    macro_rules! faults {
        ($($fault:ident: $name:literal),* $(,)?) => {$(
            if config.faults.$fault > 0 {
                all.push(P::sometimes($name, |model, state| {
                    state.left.$fault < model.config.faults.$fault
                        && state.believers().next().is_some()
                }));
            }
        )*};
    }
    faults! {
        lost_requests: "a lost request is got over",
        lost_replies: "a lost answer is got over",
        lost_news: "a lost message is got over",
        repeats: "a repeated message is got over",
        time_outs: "a time-out is got over",
        gives_up: "a caller that gives up is got over",
        crashes: "a dead client is got over",
        restarts: "a server that forgets is got over",
        lost_tokens: "a lost token is got over",
    }
    if config.faults.time_outs > 0 && config.faults.gives_up > 0 && !config.in_order {
        all.push(P::sometimes(
            "a late request takes the lock for nobody",
            |_, state| {
                let holder = state.server.inspect(KEY).map(|entry| entry.holder);
                let Some(Holder::Owner(owner)) = holder else {
                    return false;
                };
                let client = &state.clients[usize::from(owner.client)];
                !client.dead
                    && client.is_idle()
                    && !state
                        .network
                        .messages()
                        .any(|message| matches!(message, Message::Request { .. }))
            },
        ));
    }
}
