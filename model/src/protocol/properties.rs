//! The properties that hold in every state, such as mutual exclusion and growing tokens.

use stateright::Property;

use super::{
    Caller, Config, Protocol, State,
    client::{Client, Ready, Stage, Work},
    config::time,
    seen::Situation,
    state::Rule,
};
use crate::{
    mode::LockMode,
    server::{key, owner},
};

type P = Property<Protocol>;

/// Defines the properties that no step breaks a rule.
macro_rules! rules {
    ($($rule:ident: $text:literal,)+) => {
        vec![$(P::always($text, |_, state| state.broken != Some(Rule::$rule)),)+]
    };
}

/// Returns the properties of one configuration.
pub(super) fn of(config: &Config) -> Vec<P> {
    let mut all = rules! {
        TokensGrow: "tokens grow with every hold",
        RenewalsCreateNothing: "a renewal creates no lock",
        NoOvertaking: "no lock is granted before an earlier waiter has it",
        NoWaitWithoutReason: "no call waits unless a holder whose lease lasts or an earlier waiter keeps it off",
        NoLateJoin: "no call joins a hold once its client knows that another one waits",
        NoRenewalAfterRelease: "no hold is renewed after its release",
        NoHoldAfterLoss: "no hold of an ownership begins after its loss",
        NoReleaseAfterOthers: "no release counts as done after another owner had the lock",
        NoFalseLoss: "no lock counts as lost within its lease",
        LossesNoticed: "a hold that has ended by the clock is lost as soon as its client does what is due",
        NoRenewalAfterMaxHold: "no hold is renewed beyond its `max_hold`",
        NoRefusalWithoutReason: "no call is refused without a reason",
        HandoversLimited: "while other clients wait, a client makes no more local hand-overs than its limit",
        Kept: "no hold begins within the `min_hold` of the one before",
        InTime: "a call ends by its deadline",
        Consistent: "the machine is consistent",
    };
    all.extend([
        P::always(
            "a resource that checks tokens accepts no stale write",
            |_, state| !state.resource.accepted_stale,
        ),
        P::always(
            "when all clients are dead, the lock is free after a lease",
            |model, state| {
                let longest = |caller: &Caller| caller.lease.max(caller.min_hold.unwrap_or(0));
                let longest = model.config.callers().map(longest).max();
                state.become_free(longest.unwrap_or(0).max(Config::LEASE))
            },
        ),
        P::sometimes("a client holds the lock", |_, state| state.holders(0) == 1),
        P::sometimes("the world reaches its end", |model, state| {
            state.now() == model.config.end
        }),
    ]);
    if config.may_overtake() {
        all.extend(overtaken());
    } else {
        all.extend(exclusive());
    }
    if config.prompt {
        all.push(P::always(
            "every waiter is served before the end",
            |model, state| state.now() < model.config.end || !state.waits(),
        ));
    }
    let longest = config.callers().map(|caller| caller.retain).max();
    if config.is_tidy() && longest < Some(config.end / 2) {
        all.push(P::always(
            "a client whose callers have gone has forgotten their locks at the end",
            |model, state| {
                let now = state.now();
                let has_forgotten = |client: &Client| {
                    let is_busy = !client.awaited.is_empty() || client.is_due(now);
                    is_busy || !client.has_no_call() || client.is_idle()
                };
                now < model.config.end || state.clients.iter().all(has_forgotten)
            },
        ));
    }
    if config.is_tidy() {
        all.extend(tidy());
    }
    all.extend(survived(config));
    all
}

fn exclusive() -> [P; 2] {
    [
        P::always("holders tolerate each other", |model, state| {
            state.keys().all(|key| state.tolerate(&model.config, key))
        }),
        P::always(
            "no lock is granted that another client relies on",
            |_, state| {
                let now = state.now();
                let is_overtaken = |client: &Client, key| {
                    client.relies_on(key, now).any(|own| {
                        let owner = owner(client.name, own.owner, own.mode);
                        own.token()
                            .is_some_and(|token| state.is_overtaken(key, owner, token))
                    })
                };
                let keys = || state.keys();
                let mut clients = state.clients.iter();
                !clients.any(|client| keys().any(|key| is_overtaken(client, key)))
            },
        ),
    ]
}

fn overtaken() -> [P; 2] {
    [
        P::always(
            "after the lock was granted to another owner, a client relies on it for one lease at most",
            |_, state| {
                let now = state.now();
                let are_short = |client: &Client| {
                    let mut relied_on = state.keys().flat_map(|key| client.relies_on(key, now));
                    relied_on.all(|own| {
                        let since = client.is_overtaken(own.owner).unwrap_or(now);
                        own.rest(time(now)) <= time(since + Config::LEASE).since(time(now))
                    })
                };
                state.clients.iter().all(are_short)
            },
        ),
        P::sometimes(
            "two clients hold a lock that was granted to another owner",
            |_, state| state.holders(0) > 1,
        ),
    ]
}

fn tidy() -> [P; 2] {
    [
        P::always(
            "nothing is left behind when all clients have gone",
            |_, state| {
                let is_free = |number| {
                    let key = key(number);
                    let mut holders = state.server.holders(&key);
                    holders.all(|holder| holder.owner.is_kept())
                        && !state
                            .server
                            .queue(&key)
                            .any(|owner| state.server.listens(owner))
                };
                !state.is_quiet() || state.keys().all(is_free)
            },
        ),
        P::always("the server counts the entries", |model, state| {
            let counts = |client: &Client| counts_entries(model, state, client);
            state.clients.iter().all(counts)
        }),
    ]
}

/// Returns whether the server has the count of entries of each hold, while no request is on its way.
fn counts_entries(model: &Protocol, state: &State, client: &Client) -> bool {
    let is_busy = |stage| {
        matches!(
            stage,
            Stage::Calling(Work::Enter, _) | Stage::Calling(_, Ready::Woken)
        )
    };
    if !client.awaited.is_empty() || client.tasks.iter().any(|task| is_busy(task.stage)) {
        return true;
    }
    let counts = model.config.counts_entries;
    state.keys().all(|number| {
        let Some(own) = client.holds(number, state.now()) else {
            return true;
        };
        let key = key(number);
        let holders: Vec<_> = state.server.holders(&key).collect();
        let owner = owner(client.name, own.owner, own.mode);
        let counts = counts && own.used() == LockMode::Exclusive;
        let count = if counts { own.entries() } else { 1 };
        let is_settled = own.is_told(counts);
        match holders[..] {
            [holder] if holder.owner == owner => !is_settled || holder.count == count,
            _ => true,
        }
    })
}

/// Returns the situations that must occur.
pub(super) fn situations(config: &Config) -> Vec<Situation> {
    use Situation::{
        Behind, Downgraded, HandedOff, HandedOver, Joined, Kept, MaxHold, Nested, Paused, Refused,
        RetainedAgain, RetainedAsked, RetainedAtDrain, RetainedUntilEnd, RetainedWanted, Several,
        StaleWrite, Together, TokenOfRenewal, Upgrade,
    };
    let any = |is: fn(&Caller) -> bool| config.callers().any(is);
    let has = |least: usize| {
        let alike = |callers: &Vec<Caller>| {
            let first = callers.first();
            let like = callers.iter().filter(|other| {
                first.is_some_and(|first| first.keys == other.keys && other.wait != Some(0))
                    && other.mode == LockMode::Exclusive
            });
            like.count() >= least
        };
        config.clients.iter().any(alike)
    };
    let (clients, retains) = (config.clients.len(), any(|caller| caller.retain > 0));
    let (renewed, faults) = (any(|caller| caller.renewed), config.faults);
    let longest = config
        .callers()
        .map(|caller| caller.retain)
        .max()
        .unwrap_or(0);
    let wanted = clients > 1 || faults.refused_tries > 0;
    let stays = any(|caller| caller.min_hold.is_some());
    let long = config.end > 1 + Config::LEASE;
    let patient = any(|caller| caller.wait.is_none());
    [
        (
            HandedOff,
            clients > 1 && patient && renewed && config.end > 2 && !config.shares(),
        ),
        (Joined, config.joins()),
        (Together, config.meet()),
        (
            Behind,
            config.joins() && clients > 1 && any(|caller| caller.mode == LockMode::Exclusive),
        ),
        (Downgraded, config.downgrades()),
        (Upgrade, config.downgrades() && config.entries > 1),
        (HandedOver, has(2) && renewed && !stays),
        (TokenOfRenewal, has(3) && !config.prompt && config.end > 1),
        (Nested, config.entries > 1),
        (Paused, !config.prompt && long && clients > 1),
        (
            StaleWrite,
            config.writes && !config.prompt && long && clients > 1,
        ),
        (RetainedAgain, retains && has(2)),
        (RetainedWanted, retains && wanted),
        (RetainedUntilEnd, retains && config.end > 1 + longest),
        (RetainedAsked, retains && faults.release_requests > 0),
        (RetainedAtDrain, retains && faults.shut_downs > 0),
        (MaxHold, any(|caller| caller.max_hold.is_some())),
        (Kept, any(|caller| caller.min_hold.is_some())),
        (Several, any(|caller| caller.keys.len() > 1)),
        (Refused, any(|caller| caller.wait.is_some()) && clients > 1),
    ]
    .into_iter()
    .filter_map(|(situation, is)| is.then_some(situation))
    .collect()
}

/// Returns the properties that a hold occurs after each fault.
fn survived(config: &Config) -> Vec<P> {
    macro_rules! survived {
        ($($fault:ident: $name:literal,)+) => {
            [$((config.faults.$fault, P::sometimes($name, |model, state| {
                state.left.$fault < model.config.faults.$fault && state.holders(0) > 0
            })),)+]
        };
    }
    let all = survived! {
        lost_requests: "a lost request is survived",
        lost_replies: "a lost reply is survived",
        lost_notifications: "a lost notification is survived",
        repeats: "a repeated message is survived",
        failures: "a request that is refused on its way is survived",
        time_outs: "a time-out is survived",
        early_polls: "a poll without a wake-up is survived",
        gives_up: "a caller that gives up is survived",
        unpolled: "a call that is not polled any more is survived",
        drops: "a dropped guard is survived",
        crashes: "a dead client is survived",
        shut_downs: "a client that shuts down is survived",
        restarts: "a server that restarts is survived",
        lost_fences: "a lost fence is survived",
        missed_grants: "a missed grant is survived",
        refused_tries: "an attempt in vain is survived",
        release_requests: "a request to release is survived",
        forced_releases: "a release by force is survived",
        reports: "a report is survived",
    };
    all.into_iter()
        .filter_map(|(most, survived)| (most > 0).then_some(survived))
        .collect()
}
