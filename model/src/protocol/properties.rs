//! What always holds, and what is to be seen at least once.

use stateright::Property;

use super::{
    Config, KEY, Protocol, State,
    client::{Client, Turn, Why},
    network::{Message, Request},
    ownership::{How, Ownership},
    state::Rule,
};
use crate::words::Holder;

type P = Property<Protocol>;

/// The properties of one configuration.
pub(super) fn of(config: &Config) -> Vec<P> {
    let mut all = vec![
        P::always("tokens grow with every hold", |_, state| {
            state.broken != Some(Rule::TokensGrow)
        }),
        P::always("a renewal creates nothing", |_, state| {
            state.broken != Some(Rule::RenewalsCreateNothing)
        }),
        P::always("no hold is renewed after its release", |_, state| {
            state.broken != Some(Rule::NoRenewalAfterRelease)
        }),
        P::always(
            "no hold of an ownership begins after its loss",
            |_, state| state.broken != Some(Rule::NoHoldAfterLoss),
        ),
        P::always(
            "while others wait, a client serves no more than its budget",
            |_, state| state.broken != Some(Rule::BudgetKept),
        ),
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
    if config.may_overtake() {
        all.push(P::always(
            "after the lock was taken from its holder, two believe for a lease at most",
            |_, state| {
                state.relied_on().all(|ownership| {
                    let since = ownership.overtaken.unwrap_or(ownership.valid_until);
                    ownership.valid_until <= since + Config::LEASE
                })
            },
        ));
        all.push(P::sometimes(
            "a lock that was taken from its holder lets two believe",
            |_, state| state.believers().count() > 1,
        ));
    } else {
        all.push(P::always(
            "at most one holder believes that it has the lock",
            |_, state| state.believers().count() <= 1,
        ));
        all.push(P::always(
            "nobody else is given a lock that its holder relies on",
            |_, state| {
                state
                    .relied_on()
                    .all(|ownership| !state.is_overtaken(ownership.owner, ownership.granted))
            },
        ));
    }
    served(config, &mut all);
    ways(config, &mut all);
    retentions(config, &mut all);
    got_over(config, &mut all);
    all
}

/// What holds where everybody does his part in time.
fn served(config: &Config, all: &mut Vec<P>) {
    if config.prompt {
        all.push(P::always(
            "whoever waits is served before the end",
            |model, state| {
                let is_served = |client: &Client| client.turn == Turn::Nobody;
                state.now() < model.config.end || state.clients.iter().all(is_served)
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
    let Some(ownership) = client
        .ownership
        .as_ref()
        .filter(|ownership| ownership.change.is_none() && !ownership.dirty)
    else {
        return true;
    };
    let entries = ownership.hold.as_ref().map_or(1, |hold| hold.entries);
    let is_changing = |message: &Message| match message {
        Message::Request { from, request, .. } => {
            *from == client.name && matches!(request, Request::Acquire(_) | Request::Release(_))
        }
        _ => false,
    };
    let entry = state.server.inspect(KEY);
    let own = entry.filter(|entry| entry.holder == Holder::Owner(ownership.owner));
    own.is_none_or(|entry| entry.count == entries) || state.network.messages().any(is_changing)
}

fn came(state: &State, how: How) -> bool {
    state
        .believers()
        .any(|client| client.hold().is_some_and(|hold| hold.how == how))
}

fn given_up(state: &State, why: Why) -> bool {
    let mut settling = state.clients.iter().flat_map(|client| &client.settling);
    settling.any(|settling| settling.why == why)
}

/// Each way to a lock is taken.
fn ways(config: &Config, all: &mut Vec<P>) {
    if config.clients > 1 {
        all.push(P::sometimes(
            "a lock is handed to another client",
            |_, state| came(state, How::Told),
        ));
    }
    if config.callers > 1 && config.block > 1 {
        all.push(P::sometimes("a hold is handed over locally", |_, state| {
            came(state, How::HandedOver)
        }));
    }
    if config.callers > 1 && config.block == 1 {
        all.push(P::sometimes(
            "a release gives the lock to a waiter of the client",
            |_, state| came(state, How::HandedOn),
        ));
    }
    if config.extends {
        all.push(P::sometimes("a block is extended", |_, state| {
            let extends = |client: &Client| {
                let granted = client.ownership.as_ref().map(|own| own.granted);
                client.hold().map(|hold| hold.token) > granted
            };
            state.believers().any(extends)
        }));
    }
    if config.entries > 1 {
        all.push(P::sometimes("a holder enters once more", |_, state| {
            state
                .server
                .inspect(KEY)
                .is_some_and(|entry| entry.count > 1)
        }));
    }
    if config.renews && !config.prompt && config.end > 1 + Config::LEASE {
        all.push(P::sometimes(
            "a lock is held for longer than a lease",
            |_, state| {
                state.believers().any(|client| {
                    let hold = client.hold();
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
                        .ownership
                        .as_ref()
                        .is_some_and(|own| own.hold.is_some() && state.now() > own.valid_until)
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

/// Each end of a retention is seen.
fn retentions(config: &Config, all: &mut Vec<P>) {
    if config.retain == 0 {
        return;
    }
    if config.callers > 1 && config.block > 1 {
        all.push(P::sometimes(
            "a retained ownership is taken again",
            |_, state| came(state, How::Retained),
        ));
    }
    if config.clients > 1 && config.block > 1 {
        all.push(P::sometimes(
            "a retained ownership is given up when it is wanted",
            |_, state| given_up(state, Why::Wanted),
        ));
    }
    if config.renews && config.retain > Config::LEASE {
        all.push(P::sometimes(
            "an ownership is retained for longer than a lease",
            |_, state| {
                let is_long = |own: &Ownership| state.now() > own.retained_since + Config::LEASE;
                state
                    .relied_on()
                    .any(|own| own.hold.is_none() && is_long(own))
            },
        ));
    }
    if config.end > 1 + config.retain && config.block > 1 {
        all.push(P::sometimes(
            "a retained ownership ends with its time",
            |_, state| given_up(state, Why::RetainedEnough),
        ));
    }
    if config.faults.asked > 0 {
        all.push(P::sometimes(
            "a retained ownership is given up when an operator asks",
            |_, state| given_up(state, Why::Revoked),
        ));
    }
    if config.faults.shut_downs > 0 {
        all.push(P::sometimes(
            "a client that shuts down gives up what it retains",
            |_, state| given_up(state, Why::ShutDown),
        ));
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
        asked: "a request to release is got over",
        forced: "a release by force is got over",
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
