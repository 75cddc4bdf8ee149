//! Properties that always hold, and states that must occur.

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

/// Returns the properties of one configuration.
pub(super) fn of(config: &Config) -> Vec<P> {
    let mut all = vec![
        P::always("tokens grow with every hold", |_, state| {
            state.broken != Some(Rule::TokensGrow)
        }),
        P::always("a renewal creates no lock", |_, state| {
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
            "no release counts as done after another owner had the lock",
            |_, state| state.broken != Some(Rule::NoReleaseAfterOthers),
        ),
        P::always(
            "while other clients wait, a client makes no more local hand-overs than its limit",
            |_, state| state.broken != Some(Rule::HandoversLimited),
        ),
        P::always(
            "a resource that checks tokens accepts no stale write",
            |_, state| !state.resource.accepted_stale,
        ),
        P::always(
            "when all clients are dead, the lock is free after a lease",
            |_, state| state.becomes_free(),
        ),
        P::sometimes("a client holds the lock", |_, state| {
            state.holders().count() == 1
        }),
        P::sometimes("the world reaches its end", |model, state| {
            state.now() == model.config.end
        }),
    ];
    if config.may_overtake() {
        all.push(P::always(
            "after the lock was granted to another owner, a client relies on it for one lease at most",
            |_, state| {
                state.relied_on().all(|ownership| {
                    let since = ownership.overtaken.unwrap_or(ownership.valid_until);
                    ownership.valid_until <= since + Config::LEASE
                })
            },
        ));
        all.push(P::sometimes(
            "two clients hold a lock that was granted to another owner",
            |_, state| state.holders().count() > 1,
        ));
    } else {
        all.push(P::always(
            "at most one client holds the lock",
            |_, state| state.holders().count() <= 1,
        ));
        all.push(P::always(
            "no lock is granted that another client relies on",
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
    survived(config, &mut all);
    all
}

/// Adds the properties of worlds where clients act at once.
fn served(config: &Config, all: &mut Vec<P>) {
    if config.prompt {
        all.push(P::always(
            "every waiter is served before the end",
            |model, state| {
                let is_served = |client: &Client| client.turn == Turn::Free;
                state.now() < model.config.end || state.clients.iter().all(is_served)
            },
        ));
    }
    if config.is_tidy() {
        all.push(P::always(
            "nothing is left behind when all clients have gone",
            |_, state| {
                !state.is_quiet()
                    || state.server.inspect(KEY).is_none() && state.server.queue(KEY).is_empty()
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

fn holds_by(state: &State, how: How) -> bool {
    state
        .holders()
        .any(|client| client.hold().is_some_and(|hold| hold.how == how))
}

fn releases_for(state: &State, why: Why) -> bool {
    let mut releasing = state.clients.iter().flat_map(|client| &client.releasing);
    releasing.any(|releasing| releasing.why == why)
}

/// Adds the ways to get a lock, which must occur.
fn ways(config: &Config, all: &mut Vec<P>) {
    if config.clients > 1 {
        all.push(P::sometimes(
            "a lock is handed off to another client",
            |_, state| holds_by(state, How::Notified),
        ));
    }
    if config.callers > 1 && config.tokens > 1 {
        all.push(P::sometimes("a hold is handed over locally", |_, state| {
            holds_by(state, How::HandedOver)
        }));
    }
    if config.callers > 1 && config.tokens == 1 {
        all.push(P::sometimes(
            "an acquire that left with a release gets the lock",
            |_, state| holds_by(state, How::WithRelease),
        ));
    }
    if config.refences {
        all.push(P::sometimes(
            "a hold has a token of a renewal",
            |_, state| {
                let is_of_renewal = |client: &Client| {
                    let granted = client.ownership.as_ref().map(|own| own.granted);
                    client.hold().map(|hold| hold.token) > granted
                };
                state.holders().any(is_of_renewal)
            },
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
    if config.renews && !config.prompt && config.end > 1 + Config::LEASE {
        all.push(P::sometimes(
            "a lock is held for longer than a lease",
            |_, state| {
                state.holders().any(|client| {
                    let hold = client.hold();
                    hold.is_some_and(|hold| state.now() > hold.began + Config::LEASE)
                })
            },
        ));
    }
    if !config.prompt && config.end > 1 + Config::LEASE {
        all.push(P::sometimes(
            "a client is paused for longer than its lease",
            |_, state| {
                let asleep = |client: &Client| {
                    client
                        .ownership
                        .as_ref()
                        .is_some_and(|own| own.hold.is_some() && state.now() > own.valid_until)
                };
                state.clients.iter().any(asleep) && state.holders().next().is_some()
            },
        ));
        if config.writes {
            all.push(P::sometimes("a stale write arrives", |_, state| {
                state.resource.saw_stale
            }));
        }
    }
}

/// Adds the ends of a retention, which must occur.
fn retentions(config: &Config, all: &mut Vec<P>) {
    if config.retain == 0 {
        return;
    }
    if config.callers > 1 && config.tokens > 1 {
        all.push(P::sometimes(
            "a retained ownership is used again",
            |_, state| holds_by(state, How::Retained),
        ));
    }
    if (config.clients > 1 || config.faults.refused_tries > 0) && config.tokens > 1 {
        all.push(P::sometimes(
            "a retained ownership is released when it is wanted",
            |_, state| releases_for(state, Why::Wanted),
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
    if config.end > 1 + config.retain && config.tokens > 1 {
        all.push(P::sometimes(
            "a retained ownership ends with its time",
            |_, state| releases_for(state, Why::RetentionEnded),
        ));
    }
    if config.faults.release_requests > 0 {
        all.push(P::sometimes(
            "a retained ownership is released when an operator asks",
            |_, state| releases_for(state, Why::Revoked),
        ));
    }
    if config.faults.shut_downs > 0 {
        all.push(P::sometimes(
            "a client that shuts down releases a retained ownership",
            |_, state| releases_for(state, Why::ShutDown),
        ));
    }
}

/// Adds the faults, which must occur before a hold.
fn survived(config: &Config, all: &mut Vec<P>) {
    macro_rules! faults {
        ($($fault:ident: $name:literal),* $(,)?) => {$(
            if config.faults.$fault > 0 {
                all.push(P::sometimes($name, |model, state| {
                    state.left.$fault < model.config.faults.$fault
                        && state.holders().next().is_some()
                }));
            }
        )*};
    }
    faults! {
        lost_requests: "a lost request is survived",
        lost_replies: "a lost reply is survived",
        lost_notifications: "a lost notification is survived",
        repeats: "a repeated message is survived",
        time_outs: "a time-out is survived",
        gives_up: "a caller that gives up is survived",
        crashes: "a dead client is survived",
        restarts: "a server that restarts is survived",
        lost_fences: "a lost fence is survived",
        missed_grants: "a missed grant is survived",
        refused_tries: "an attempt in vain is survived",
        release_requests: "a request to release is survived",
        forced_releases: "a release by force is survived",
    }
    if config.faults.time_outs > 0 && config.faults.gives_up > 0 && !config.in_order {
        all.push(P::sometimes(
            "a late request acquires the lock for a caller that has gone",
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
