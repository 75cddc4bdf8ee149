//! What callers do: they acquire, enter, leave, downgrade and write, and a client drops, closes or ends their calls.

use super::effects::{feed, goes_on};
use crate::{
    few::{self, Few},
    machine::{CallId, HoldEnd, Input, Inside},
    mode::LockMode,
    protocol::{
        Config, State, Time,
        client::{Life, Ready, Stage, Work},
        network::Message,
    },
    server,
};

/// Begins a caller's acquire.
pub(super) fn call(config: &Config, state: &mut State, name: u8, at: usize) {
    let caller = config.caller(name, at);
    let now = state.now();
    let task = &mut state.client(name).tasks[at];
    task.stage = Stage::Calling(Work::Acquire, Ready::Waiting);
    task.deadline = caller.wait.map_or(Time::MAX, |wait| now + wait);
    let input = Input::Acquire {
        call: task.call,
        locks: caller
            .keys
            .iter()
            .map(|key| caller.wants(server::key(*key)))
            .collect(),
        inside: Few::new(),
        options: caller.terms(caller.lease),
        runs_body: false,
    };
    feed(config, state, name, input, Some(at));
}

/// Begins a nested acquire of the holder's first lock.
pub(super) fn enter(config: &Config, state: &mut State, name: u8, at: usize) {
    let caller = config.caller(name, at);
    let task = &mut state.client(name).tasks[at];
    task.nested += 1;
    task.stage = Stage::Calling(Work::Enter, Ready::Waiting);
    let (entry, token) = &task.entries[0];
    let inside = Inside {
        slot: entry.slot,
        owner: entry.owner,
        token: *token,
        entry: entry.number,
    };
    let input = Input::Acquire {
        call: task.call,
        locks: few::one(caller.wants(entry.key.clone())),
        inside: few::one(inside),
        // The hold has its own lease.
        options: caller.terms(2 * caller.lease),
        runs_body: false,
    };
    feed(config, state, name, input, Some(at));
}

/// Ends the innermost entry of a holder. `waits`: the call waits for the release.
pub(super) fn leave(config: &Config, state: &mut State, name: u8, at: usize, waits: bool) {
    let (caller, now) = (config.caller(name, at), state.now());
    let client = state.client(name);
    let task = &mut client.tasks[at];
    let Some((entry, _)) = task.entries.pop() else {
        return;
    };
    let call = waits.then_some(task.call);
    task.stage = Stage::Calling(Work::Leave, Ready::Waiting);
    let kept_until = caller.min_hold.map_or(0, |least| task.began + least);
    let is_last = task.entries.is_empty();
    let was_overtaken = client.is_overtaken(entry.owner).is_some();
    client.tasks[at].was_overtaken = was_overtaken;
    let key = server::number(&entry.key);
    if is_last && client.holds(key, now).is_some() {
        state.kept_until[usize::from(key)] = kept_until;
    }
    let end = HoldEnd::Released;
    let input = Input::Leave { entry, end, call };
    feed(config, state, name, input, Some(at));
    if !waits {
        goes_on(state, name, at);
    }
}

/// Polls a woken call.
pub(super) fn poll(config: &Config, state: &mut State, name: u8, at: usize) {
    let task = &mut state.client(name).tasks[at];
    if let Stage::Calling(_, ready) = &mut task.stage {
        *ready = Ready::Waiting;
    }
    let input = Input::Poll(task.call);
    feed(config, state, name, input, Some(at));
}

/// Drops the future of a call and its outstanding requests.
pub(super) fn drop_call(config: &Config, state: &mut State, name: u8, at: usize) {
    let call = state.client(name).tasks[at].call;
    drop_requests(config, state, name, |by| by == Some(call));
    feed(config, state, name, Input::Cancel(call), None);
    goes_on(state, name, at);
}

/// Drops the futures of requests.
fn drop_requests(
    config: &Config,
    state: &mut State,
    name: u8,
    are_dropped: impl Fn(Option<CallId>) -> bool,
) {
    let ids: Vec<_> = (state.client(name).awaited.iter())
        .filter(|awaited| are_dropped(awaited.by))
        .map(|awaited| awaited.id)
        .collect();
    for id in ids {
        super::delivery::dropped(config, state, name, id);
    }
}

/// Closes a client. Its calls await no more replies.
pub(super) fn close(config: &Config, state: &mut State, name: u8) {
    state.client(name).life = Life::Closed;
    feed(config, state, name, Input::Close, None);
    drop_requests(config, state, name, |by| by.is_some());
    poll_all(config, state, name);
}

/// Ends a client that shuts down. Its requests get no replies.
pub(super) fn end(config: &Config, state: &mut State, name: u8) {
    feed(config, state, name, Input::End, None);
    drop_requests(config, state, name, |_| true);
    poll_all(config, state, name);
    state.stop(name);
}

fn poll_all(config: &Config, state: &mut State, name: u8) {
    for at in 0..state.client(name).tasks.len() {
        if let Stage::Calling(..) = state.client(name).tasks[at].stage {
            poll(config, state, name, at);
        }
    }
}

/// Downgrades the lock of a holder.
pub(super) fn downgrade(config: &Config, state: &mut State, name: u8, at: usize) {
    let entry = state.client(name).tasks[at].entries[0].0.clone();
    feed(config, state, name, Input::Downgrade(entry.clone()), None);
    let client = state.client(name);
    let own = client.machine.own(&entry.key, entry.owner);
    // Refused while nested calls need the exclusive lock.
    client.tasks[at].is_downgraded = own.is_some_and(|own| own.used() == LockMode::Shared);
}

/// Sends a holder's write to the resource.
pub(super) fn write(state: &mut State, name: u8, at: usize) {
    let task = &mut state.client(name).tasks[at];
    task.wrote = true;
    let (entry, token) = &task.entries[0];
    let write = Message::Write {
        owner: server::owner(name, entry.owner, LockMode::Exclusive),
        token: *token,
    };
    state.network.send(write);
}
