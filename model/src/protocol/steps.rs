//! Lists the steps that are possible in a state, and takes them.

mod calls;
mod delivery;
mod effects;

use super::{
    Config, State, Time,
    client::{Client, Life, Ready, Stage, Task, Work},
    config::duration,
    network::{Id, Message},
    state::Rule,
};
use crate::{
    machine::{Event, Input, Machine},
    mode::LockMode,
    server,
};

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A caller arrives.
    Call(u8, usize),
    /// A call that was woken is polled.
    Poll(u8, usize),
    /// A call that waits is polled without having been woken.
    PollEarly(u8, usize),
    /// A call is dropped.
    GiveUp(u8, usize),
    /// A call is not polled any more.
    Forget(u8, usize),
    /// A call that was not polled any more is dropped.
    DropForgotten(u8, usize),
    /// A holder enters again.
    Enter(u8, usize),
    /// A holder leaves its innermost entry.
    Leave(u8, usize),
    /// A guard is dropped: the background releases.
    Drop(u8, usize),
    /// A holder downgrades its lock.
    Downgrade(u8, usize),
    /// A holder writes to the resource.
    Write(u8, usize),
    /// A client does what is due.
    Due(u8),
    /// A client stops waiting for a reply.
    TimeOut(u8, Id),
    /// A request is refused on its way.
    Fail(u8, Id),
    /// A message arrives.
    Deliver(Message),
    /// A message arrives, and its copy stays in flight.
    Repeat(Message),
    /// A message is lost.
    Lose(Message),
    /// A client dies.
    Crash(u8),
    /// A client begins to shut down.
    Drain(u8),
    /// The holds of a client that shuts down are lost.
    Close(u8),
    /// A client that shuts down ends.
    End(u8),
    /// The server restarts without data.
    Restart,
    /// The server loses the last fence.
    LoseFence,
    /// A server takes over with an older copy of the data, which lacks the last grant.
    MissGrant,
    /// A caller that does not wait finds the lock taken.
    Try,
    /// An operator revokes the lock.
    Ask,
    /// An operator releases the lock for its holder.
    Force {
        /// Whether the holder is notified at once.
        notified: bool,
    },
    /// A change of the lock is reported to a client. The change may be the client's own.
    Report(u8),
    /// Reports were missed. The flag tells whether they are received again.
    Miss(u8, bool),
    /// The clock advances.
    Tick,
}

/// When the last caller arrives in worlds where every waiter must be served.
const LAST_CALL: Time = 2;

/// Lists all possible steps.
pub(super) fn possible(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for message in state.network.messages() {
        if (!config.in_order || is_first(state, message)) && is_read(state, message) {
            actions.push(Action::Deliver(message.clone()));
        }
    }
    let alive = || {
        let clients = state.clients.iter();
        clients.filter(|client| client.life < Life::Ended)
    };
    for client in alive() {
        due(config, state, client, actions);
    }
    let urgent = config.prompt && !actions.is_empty();
    for client in alive() {
        optional(config, state, client, actions);
        faults_of(state, client, actions);
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

/// Returns whether a message has a reader.
fn is_read(state: &State, message: &Message) -> bool {
    match message {
        Message::Reply { to, id, .. } => state.clients[usize::from(*to)].reads(*id),
        _ => true,
    }
}

/// Lists the steps that a client has to take, at once or later.
fn due(config: &Config, state: &State, client: &Client, actions: &mut Vec<Action>) {
    let (name, now) = (client.name, state.now());
    if client.is_due(now) {
        actions.push(Action::Due(name));
    }
    for (at, task) in client.tasks.iter().enumerate() {
        match task.stage {
            Stage::Calling(_, Ready::Woken) => actions.push(Action::Poll(name, at)),
            Stage::Holding if config.prompt && now > task.began => {
                actions.push(Action::Leave(name, at));
            }
            _ => {}
        }
    }
    // A client gives up a reply that cannot arrive.
    for awaited in &client.awaited {
        if !state.network.carries(name, awaited.id) && client.reads(awaited.id) {
            actions.push(Action::TimeOut(name, awaited.id));
        }
    }
    if config.prompt && client.life == Life::Draining && client.machine.is_drained() {
        actions.push(Action::Close(name));
    }
    let has_ended = client.machine.is_quiet() && client.machine.is_released();
    if config.prompt && client.life == Life::Closed && has_ended {
        actions.push(Action::End(name));
    }
}

/// Lists the steps that a client may take.
fn optional(config: &Config, state: &State, client: &Client, actions: &mut Vec<Action>) {
    let (name, now, left) = (client.name, state.now(), &state.left);
    let callers = &config.clients[usize::from(name)];
    let is_open = !config.prompt || now <= LAST_CALL;
    for (at, task) in client.tasks.iter().enumerate() {
        match task.stage {
            // Callers that are alike come in their order.
            Stage::ToCome if is_open => {
                let is_like = |other: usize| {
                    client.tasks[other].stage == Stage::ToCome && callers[other] == callers[at]
                };
                if client.life == Life::Open && !(0..at).any(is_like) {
                    actions.push(Action::Call(name, at));
                }
            }
            Stage::Calling(work, ready) => {
                if left.early_polls > 0 && ready == Ready::Waiting {
                    actions.push(Action::PollEarly(name, at));
                }
                if left.gives_up > 0 && work != Work::Leave {
                    actions.push(Action::GiveUp(name, at));
                }
                if left.unpolled > 0 {
                    actions.push(Action::Forget(name, at));
                }
                if work == Work::Enter {
                    downgrades(config, client, (at, task), now, actions);
                }
            }
            Stage::Unpolled => actions.push(Action::DropForgotten(name, at)),
            Stage::Holding => holding(config, client, (at, task), now, actions),
            Stage::ToCome | Stage::Gone => {}
        }
        if left.drops > 0 && task.stage == Stage::Holding {
            actions.push(Action::Drop(name, at));
        }
    }
    for awaited in &client.awaited {
        if state.network.carries(name, awaited.id) && client.reads(awaited.id) {
            if left.time_outs > 0 {
                actions.push(Action::TimeOut(name, awaited.id));
            }
            if left.failures > 0 && state.network.is_on_its_way(name, awaited.id) {
                actions.push(Action::Fail(name, awaited.id));
            }
        }
    }
    if !config.prompt {
        match client.life {
            Life::Draining => actions.push(Action::Close(name)),
            Life::Closed => actions.push(Action::End(name)),
            Life::Open | Life::Ended => {}
        }
    }
}

fn holding(
    config: &Config,
    client: &Client,
    (at, task): (usize, &Task),
    now: Time,
    actions: &mut Vec<Action>,
) {
    let key = task
        .entries
        .first()
        .map_or(0, |(entry, _)| server::number(&entry.key));
    let holds = client.holds(key, now).is_some();
    if holds && task.nested + 1 < config.entries {
        actions.push(Action::Enter(client.name, at));
    }
    if !config.prompt || now == task.began {
        actions.push(Action::Leave(client.name, at));
    }
    downgrades(config, client, (at, task), now, actions);
    let is_exclusive = config.caller(client.name, at).mode == LockMode::Exclusive;
    if config.writes && is_exclusive && holds && !task.wrote {
        actions.push(Action::Write(client.name, at));
    }
}

/// A nested call may be on its way.
fn downgrades(
    config: &Config,
    client: &Client,
    (at, task): (usize, &Task),
    now: Time,
    actions: &mut Vec<Action>,
) {
    if config.caller(client.name, at).downgrades
        && let [(entry, _)] = &task.entries[..]
        && client.holds(server::number(&entry.key), now).is_some()
        && !task.is_downgraded
    {
        actions.push(Action::Downgrade(client.name, at));
    }
}

/// Lists the faults of a client.
fn faults_of(state: &State, client: &Client, actions: &mut Vec<Action>) {
    let (name, left) = (client.name, &state.left);
    if left.crashes > 0 && !client.is_idle() {
        actions.push(Action::Crash(name));
    }
    let has_slots = client.machine.slots().next().is_some();
    if left.shut_downs > 0 && client.life == Life::Open && has_slots {
        actions.push(Action::Drain(name));
    }
    if left.reports > 0 && has_slots {
        actions.push(Action::Report(name));
        actions.extend([true, false].map(|is_heard| Action::Miss(name, is_heard)));
    }
}

fn faults(config: &Config, state: &State, actions: &mut Vec<Action>) {
    let left = &state.left;
    for message in state.network.messages() {
        let (lost, repeated) = match message {
            Message::Request { .. } => (left.lost_requests, left.repeats),
            Message::Reply { .. } => (left.lost_replies, 0),
            Message::Notification(..) => (left.lost_notifications, left.repeats),
            Message::Write { .. } => (0, 0),
        };
        if lost > 0 {
            actions.push(Action::Lose(message.clone()));
        }
        if repeated > 0 && (!config.in_order || is_first(state, message)) {
            actions.push(Action::Repeat(message.clone()));
        }
    }
    if left.restarts > 0 {
        actions.push(Action::Restart);
    }
    if left.lost_fences > 0 && state.server.fence() > 0 {
        actions.push(Action::LoseFence);
    }
    let is_free = state.server.holders(&server::key(0)).next().is_none();
    if left.missed_grants > 0 && is_free && state.server.fence() > 0 {
        actions.push(Action::MissGrant);
    }
    if delivery::holder(state).is_some() {
        if left.release_requests > 0 {
            actions.push(Action::Ask);
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
        Action::Call(name, at) => calls::call(config, state, name, at),
        Action::Poll(name, at) => calls::poll(config, state, name, at),
        Action::PollEarly(name, at) => {
            state.left.early_polls -= 1;
            calls::poll(config, state, name, at);
        }
        Action::GiveUp(name, at) => {
            state.left.gives_up -= 1;
            calls::drop_call(config, state, name, at);
        }
        Action::Forget(name, at) => {
            state.left.unpolled -= 1;
            state.client(name).tasks[at].stage = Stage::Unpolled;
        }
        Action::DropForgotten(name, at) => calls::drop_call(config, state, name, at),
        Action::Enter(name, at) => calls::enter(config, state, name, at),
        Action::Leave(name, at) => calls::leave(config, state, name, at, true),
        Action::Drop(name, at) => {
            state.left.drops -= 1;
            calls::leave(config, state, name, at, false);
        }
        Action::Downgrade(name, at) => calls::downgrade(config, state, name, at),
        Action::Write(name, at) => calls::write(state, name, at),
        Action::Due(name) => {
            effects::feed(config, state, name, Input::Time, None);
            let now = state.now();
            if state.client(name).believes(now) {
                state.breaks(Rule::LossesNoticed);
            }
        }
        Action::TimeOut(name, id) => {
            if state.network.carries(name, id) {
                state.left.time_outs -= 1;
            }
            delivery::fails(config, state, name, id, true);
        }
        Action::Fail(name, id) => {
            state.left.failures -= 1;
            state.network.forget_request(name, id);
            delivery::fails(config, state, name, id, false);
        }
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
                Message::Notification(..) => state.left.lost_notifications -= 1,
                Message::Write { .. } => {}
            }
        }
        Action::Crash(name) => {
            state.left.crashes -= 1;
            state.stop(name);
        }
        Action::Drain(name) => {
            state.left.shut_downs -= 1;
            state.client(name).life = Life::Draining;
            effects::feed(config, state, name, Input::Drain, None);
        }
        Action::Close(name) => calls::close(config, state, name),
        Action::End(name) => calls::end(config, state, name),
        Action::Tick => {
            // Whatever was due was done.
            let now = state.now();
            let mut alive = state.clients.iter().filter(|one| one.life < Life::Ended);
            if config.prompt && alive.any(|client| client.believes(now)) {
                state.breaks(Rule::LossesNoticed);
            }
            state.server.pass(duration(1));
        }
        fault => befall(config, state, &fault),
    }
}

/// Lets the server lose data, or an operator act.
fn befall(config: &Config, state: &mut State, fault: &Action) {
    match *fault {
        Action::Restart => {
            state.left.restarts -= 1;
            state.server.restart();
        }
        Action::LoseFence => {
            state.left.lost_fences -= 1;
            state.server.forget_fence();
        }
        Action::MissGrant => {
            state.left.missed_grants -= 1;
            state.server.miss_grant();
        }
        Action::Try => {
            state.left.refused_tries -= 1;
            delivery::try_in_vain(state);
        }
        Action::Ask => {
            state.left.release_requests -= 1;
            delivery::tell_holder(config, state, false);
        }
        Action::Force { notified } => {
            state.left.forced_releases -= 1;
            delivery::force(config, state, notified);
        }
        Action::Report(name) => {
            state.left.reports -= 1;
            report(config, state, name, Event::Changed);
        }
        Action::Miss(name, is_heard) => {
            state.left.reports -= 1;
            report(config, state, name, Event::Missed { is_heard });
        }
        _ => unreachable!("{fault:?} is not a fault"),
    }
}

/// Reports a possible change of its locks to a client.
fn report(config: &Config, state: &mut State, name: u8, event: Event) {
    let machine: &Machine = &state.client(name).machine;
    let keys: Vec<_> = machine.slots().map(|slot| slot.key().clone()).collect();
    for key in keys {
        effects::feed(config, state, name, Input::Event(key, None, event), None);
    }
}
