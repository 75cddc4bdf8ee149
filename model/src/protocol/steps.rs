//! The possible steps.

mod delivery;
mod own;
mod ownership;

use super::{
    Config, KEY, State, Time,
    acquisition::Step,
    client::{Client, Turn},
    network::{Id, Message},
    ownership::Ownership,
};
use crate::words::Holder;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A caller arrives.
    Call(u8),
    /// The first local waiter sends an acquire.
    Acquire(u8),
    /// The first local waiter begins its hold after a notification.
    BeginHold(u8),
    /// The first local waiter gives up.
    GiveUp(u8),
    /// A holder enters again.
    Enter(u8),
    /// A holder leaves.
    Leave(u8),
    /// A client sends a lower count.
    Count(u8),
    /// A client renews its ownership.
    Renew(u8),
    /// A client renews its ownership, and asks for a new fence.
    RenewFence(u8),
    /// A client releases an ownership whose retention has ended.
    EndRetention(u8),
    /// A client shuts down while it retains the lock.
    ShutDown(u8),
    /// A client notices that its lease has ended.
    LoseLease(u8),
    /// A client sends its n-th pending release.
    Release(u8, usize),
    /// A client abandons a release that failed, and leaves the lock to its lease.
    Abandon(u8, usize),
    /// A client stops waiting for a reply.
    TimeOut(u8, Id),
    /// A holder writes to the resource.
    Write(u8),
    /// A message arrives.
    Deliver(Message),
    /// A message arrives, and its copy stays in flight.
    Repeat(Message),
    /// A message is lost.
    Lose(Message),
    /// A client dies.
    Crash(u8),
    /// The server restarts without data.
    Restart,
    /// The server loses the last fence.
    LoseFence,
    /// A server takes over with an older copy of the data, which lacks the last grant.
    MissGrant,
    /// A caller that does not wait finds the lock taken.
    Try,
    /// An operator asks a holder to release.
    RequestRelease(u8),
    /// An operator releases the lock for its holder, which may be notified.
    Force {
        /// Whether the holder is notified at once.
        notified: bool,
    },
    /// The clock advances.
    Tick,
}

/// When the last caller arrives in worlds where every waiter must be served.
const LAST_CALL: Time = 2;

/// Lists all possible steps.
pub(super) fn possible(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for message in state.network.messages() {
        if !config.in_order || is_first(state, message) {
            actions.push(Action::Deliver(message.clone()));
        }
    }
    for client in state.clients.iter().filter(|client| !client.dead) {
        due(config, state, client, actions);
    }
    let urgent = config.prompt && !actions.is_empty();
    for client in state.clients.iter().filter(|client| !client.dead) {
        optional(config, state, client, actions);
    }
    faults(config, state, actions);
    if !urgent && state.now() < config.end {
        actions.push(Action::Tick);
    }
}

fn is_first(state: &State, message: &Message) -> bool {
    match message {
        Message::Request { from, id, .. } => state.network.oldest(*from) == Some(*id),
        _ => true,
    }
}

/// Lists the steps that a client has to take, at once or later.
fn due(config: &Config, state: &State, client: &Client, actions: &mut Vec<Action>) {
    let (name, now) = (client.name, state.now());
    if client.turn == Turn::Waiter {
        match &client.acquisition {
            None => actions.push(Action::Acquire(name)),
            Some(acquisition) if acquisition.pending.is_none() => match acquisition.step {
                Step::Granted(grant) if grant.is_fresh(Config::LEASE, now) => {
                    actions.push(Action::BeginHold(name));
                }
                Step::Waiting { .. } if config.has(super::ClientBug::NoTimer) => {}
                Step::Waiting { ask_at, .. } if now < ask_at => {}
                _ => actions.push(Action::Acquire(name)),
            },
            Some(_) => {}
        }
    }
    if let Some(ownership) = &client.ownership {
        let is_valid = ownership.is_valid(now);
        if !is_valid {
            actions.push(Action::LoseLease(name));
        }
        if ownership.change.is_none() && ownership.dirty {
            actions.push(Action::Count(name));
        }
        if config.renews
            && is_valid
            && now > ownership.confirmed
            && ownership.renewals.iter().all(|renewal| renewal.sent < now)
        {
            actions.push(Action::Renew(name));
        }
        if config.refences && is_valid && wants_fence(config, client, ownership, now) {
            actions.push(Action::RenewFence(name));
        }
        if let Some(hold) = &ownership.hold {
            if config.prompt && now > hold.began && ownership.change.is_none() {
                actions.push(Action::Leave(name));
            }
        } else if now >= ownership.retained_since + config.retain {
            actions.push(Action::EndRetention(name));
        }
    }
    for (at, releasing) in client.releasing.iter().enumerate() {
        if releasing.pending.is_none() {
            actions.push(Action::Release(name, at));
        }
    }
    if config.prompt {
        // A client gives up a reply that cannot arrive.
        for id in own::awaited(client) {
            if !state.network.carries(name, id) {
                actions.push(Action::TimeOut(name, id));
            }
        }
    }
}

/// Returns whether tokens run low that later holds could use.
fn wants_fence(config: &Config, client: &Client, ownership: &Ownership, now: Time) -> bool {
    ownership.hold.is_some()
        && (client.waiting > 0 || config.retain > 0)
        && ownership.tokens.left() <= config.tokens / 2
        && ownership.fencing.is_none()
        && ownership.asked_fence < now
}

/// Lists the steps that a client may take.
fn optional(config: &Config, state: &State, client: &Client, actions: &mut Vec<Action>) {
    let (name, now) = (client.name, state.now());
    if client.to_come > 0 && (!config.prompt || now <= LAST_CALL) {
        actions.push(Action::Call(name));
    }
    if client.turn == Turn::Waiter && state.left.gives_up > 0 {
        actions.push(Action::GiveUp(name));
    }
    if let Some(ownership) = &client.ownership
        && let Some(hold) = &ownership.hold
    {
        let holds = ownership.is_valid(now);
        if ownership.change.is_none() {
            // Once, or repeated without a reply.
            let may_enter = !ownership.dirty && hold.entered + 1 < config.entries;
            if holds && !ownership.lost && (may_enter || ownership.dirty && ownership.entering) {
                actions.push(Action::Enter(name));
            }
            if !config.prompt || now == hold.began || hold.entries > 1 {
                actions.push(Action::Leave(name));
            }
        }
        if config.writes && holds && !hold.wrote {
            actions.push(Action::Write(name));
        }
    }
    for (at, releasing) in client.releasing.iter().enumerate() {
        if releasing.pending.is_none() && releasing.tried && !config.is_tidy() {
            actions.push(Action::Abandon(name, at));
        }
    }
    if state.left.time_outs > 0 {
        for id in own::awaited(client) {
            if state.network.carries(name, id) {
                actions.push(Action::TimeOut(name, id));
            }
        }
    }
}

fn faults(config: &Config, state: &State, actions: &mut Vec<Action>) {
    let left = &state.left;
    for message in state.network.messages() {
        let (lost, repeated) = match message {
            Message::Request { .. } => (left.lost_requests, left.repeats),
            Message::Reply { .. } => (left.lost_replies, 0),
            Message::Notification(_) => (left.lost_notifications, left.repeats),
            Message::Write { .. } => (0, 0),
        };
        if lost > 0 {
            actions.push(Action::Lose(message.clone()));
        }
        if repeated > 0 && (!config.in_order || is_first(state, message)) {
            actions.push(Action::Repeat(message.clone()));
        }
    }
    if left.crashes > 0 {
        let alive = state
            .clients
            .iter()
            .filter(|client| !client.dead && !client.is_idle());
        actions.extend(alive.map(|client| Action::Crash(client.name)));
    }
    if left.shut_downs > 0 {
        let retain = state.clients.iter().filter(|client| client.retains());
        actions.extend(retain.map(|client| Action::ShutDown(client.name)));
    }
    if left.restarts > 0 {
        actions.push(Action::Restart);
    }
    if left.lost_fences > 0 && state.server.fence(KEY) > 0 {
        actions.push(Action::LoseFence);
    }
    let entry = state.server.inspect(KEY);
    if left.missed_grants > 0 && entry.is_none() && state.server.fence(KEY) > 0 {
        actions.push(Action::MissGrant);
    }
    if let Some(Holder::Owner(owner)) = entry.map(|entry| entry.holder) {
        let client = &state.clients[usize::from(owner.client)];
        let ownership = client.ownership.as_ref();
        if left.release_requests > 0 && ownership.is_some_and(|own| own.owner == owner && !own.lost)
        {
            actions.push(Action::RequestRelease(client.name));
        }
        if left.refused_tries > 0 {
            actions.push(Action::Try);
        }
        if left.forced_releases > 0 {
            actions.extend([true, false].map(|notified| Action::Force { notified }));
        }
    }
}

/// Takes a step.
pub(super) fn take(config: &Config, state: &mut State, action: Action) {
    match action {
        Action::Deliver(message) => {
            state.network.take(&message);
            delivery::arrive(config, state, message);
        }
        Action::Repeat(message) => {
            state.left.repeats -= 1;
            delivery::arrive(config, state, message);
        }
        Action::Lose(message) => {
            state.network.take(&message);
            match message {
                Message::Request { .. } => state.left.lost_requests -= 1,
                Message::Reply { .. } => state.left.lost_replies -= 1,
                Message::Notification(_) => state.left.lost_notifications -= 1,
                Message::Write { .. } => {}
            }
        }
        Action::Crash(name) => {
            state.left.crashes -= 1;
            state.client(name).die();
            state.network.forget_client(name);
            state.server.leave(name);
        }
        Action::Restart => {
            state.left.restarts -= 1;
            state.server.restart();
        }
        Action::LoseFence => {
            state.left.lost_fences -= 1;
            state.server.lose_fence(KEY);
        }
        Action::MissGrant => {
            state.left.missed_grants -= 1;
            state.server.miss_grant(KEY);
        }
        Action::Try => {
            state.left.refused_tries -= 1;
            own::try_in_vain(config, state);
        }
        Action::RequestRelease(name) => {
            state.left.release_requests -= 1;
            ownership::revoke(config, state, name);
        }
        Action::Force { notified } => {
            state.left.forced_releases -= 1;
            own::force(config, state, notified);
        }
        Action::Tick => state.server.pass(1),
        action => own::act(config, state, &action),
    }
}
