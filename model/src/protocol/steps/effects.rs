//! What follows from an input to a client's machine: the requests that are sent, the calls that go on, and the rules that it breaks.

use crate::{
    lost::LostCause,
    machine::{
        Ask, By, Entered, Event, Input, Output, Owner, Phase, Refusal, Renew, Request, Step,
    },
    protocol::{
        Config, Faults, State, Time,
        client::{Asked, Client, Life, Ready, Stage, Work},
        network::Message,
        seen::Situation,
        state::Rule,
    },
    requests::Body,
    server,
};

/// The current ownership of a key in a client: its phase, whether other clients wait, and its number of entries.
type Current = (u8, Owner, Phase, bool, u32);

/// Gives the machine of a client an input, and does what follows. `polled`: the caller whose call is polled.
pub(super) fn feed(
    config: &Config,
    state: &mut State,
    name: u8,
    input: Input,
    polled: Option<usize>,
) {
    let (now, cause) = (state.now(), cause(&input));
    let replied = matches!(input, Input::Reply(..));
    let client = state.client(name);
    let is_acquiring =
        |at: usize| matches!(client.tasks[at].stage, Stage::Calling(Work::Acquire, _));
    let may_join = polled.is_some_and(is_acquiring);
    let before = current(client);
    let valid = client.valid(now);
    let outputs = client.on(input, now);
    let after = current(client);
    for before in before {
        if may_join && joins_late(before, &after) {
            state.breaks(Rule::NoLateJoin);
        }
        compare(config, state, name, before, &after, cause);
    }
    for output in outputs {
        match output {
            Output::Step(step) => {
                if let Some(at) = polled {
                    take_step(config, state, name, at, step, replied);
                }
            }
            Output::Wake(call) => {
                for task in &mut state.client(name).tasks {
                    if let Stage::Calling(_, ready @ Ready::Waiting) = &mut task.stage
                        && task.call == call
                    {
                        *ready = Ready::Woken;
                    }
                }
            }
            Output::Send(request) => send(state, name, request),
            Output::Renew(renew) => send_renewal(state, name, *renew),
            Output::Lost(loss) => {
                let is_false = match loss.cause {
                    LostCause::Removed => !config.may_overtake() && config.faults.repeats == 0,
                    LostCause::Expired => config.prompt && config.faults == Faults::NONE,
                    _ => false,
                };
                if is_false && (loss.cause == LostCause::Expired || valid.contains(&loss.owner)) {
                    state.breaks(Rule::NoFalseLoss);
                }
                state.client(name).known(loss.owner).lost = Some(loss.cause);
                if loss.cause == LostCause::MaxHold {
                    state.seen.note(Situation::MaxHold);
                }
            }
            Output::Ended { .. } | Output::Revoked(_) | Output::GaveUp { .. } => {}
        }
    }
    state.client(name).forget();
    state.forget_notifications();
}

/// The situation in which a retained ownership is released because of an input.
fn cause(input: &Input) -> Option<Situation> {
    match input {
        Input::Event(_, _, Event::Wanted) | Input::Renewed { .. } => {
            Some(Situation::RetainedWanted)
        }
        Input::Event(_, _, Event::Revoke { .. }) => Some(Situation::RetainedAsked),
        Input::Time => Some(Situation::RetainedUntilEnd),
        Input::Drain => Some(Situation::RetainedAtDrain),
        _ => None,
    }
}

fn current(client: &Client) -> Vec<Current> {
    let slots = client.machine.slots();
    let current = slots.filter_map(|slot| {
        let own = slot.current()?;
        Some((
            server::number(slot.key()),
            own.owner,
            own.phase(),
            slot.others_wait(),
            own.entries(),
        ))
    });
    current.collect()
}

/// Returns whether a call has joined a hold, although its client knew that another client waits.
fn joins_late((key, owner, phase, wanted, entries): Current, after: &[Current]) -> bool {
    let has_more = |now: &Current| (now.0, now.1) == (key, owner) && now.4 > entries;
    wanted && phase == Phase::Held && after.iter().any(has_more)
}

/// Notes how an input changed the current ownership of a key.
fn compare(
    config: &Config,
    state: &mut State,
    name: u8,
    (key, owner, phase, wanted, _): Current,
    after: &[Current],
    cause: Option<Situation>,
) {
    let next = after
        .iter()
        .find(|(other, own, ..)| (*other, *own) == (key, owner));
    match (phase, next.map(|(_, _, phase, ..)| *phase)) {
        (Phase::Held, Some(Phase::HandedOver)) => {
            state.seen.note(Situation::HandedOver);
            let known = state.client(name).known(owner);
            known.handed_over += usize::from(wanted);
            if known.handed_over > Config::LOCAL_HANDOVERS && config.faults.shut_downs == 0 {
                state.breaks(Rule::HandoversLimited);
            }
        }
        (Phase::Retained, Some(Phase::HandedOver | Phase::Held)) => {
            state.seen.note(Situation::RetainedAgain);
        }
        (Phase::Retained, None) => {
            if let Some(cause) = cause {
                state.seen.note(cause);
            }
        }
        _ => {}
    }
}

fn take_step(config: &Config, state: &mut State, name: u8, at: usize, step: Step, replied: bool) {
    let now = state.now();
    let task = &mut state.client(name).tasks[at];
    let Stage::Calling(work, ready) = &mut task.stage else {
        return;
    };
    let work = *work;
    if step.is_last() && config.prompt && now > task.deadline.saturating_add(1) {
        state.breaks(Rule::InTime);
        return;
    }
    match step {
        Step::Send(request) => {
            *ready = Ready::Sending;
            send(state, name, request);
        }
        // After a reply, a call asks at once for its next step.
        Step::Wait => {
            *ready = if replied {
                Ready::Woken
            } else {
                Ready::Waiting
            };
        }
        Step::Entered(entered) => {
            if work == Work::Acquire {
                task.began = now;
                if entered.len() > 1 {
                    state.seen.note(Situation::Several);
                }
            }
            for entered in entered {
                begin(config, state, name, at, entered);
            }
            goes_on(state, name, at);
        }
        Step::Downgraded => {}
        Step::Left(outcome) => {
            if replied && outcome.is_ok() && task.was_overtaken && !config.may_overtake() {
                state.breaks(Rule::NoReleaseAfterOthers);
            }
            goes_on(state, name, at);
        }
        Step::Refused(why) => {
            let is_acquire = work == Work::Acquire;
            let waits = config.caller(name, at).wait.is_none();
            let is_upgrade = matches!(why, Refusal::Upgrade(..));
            let has_reason = match why {
                Refusal::Taken(..) | Refusal::Failed => !waits,
                Refusal::Lost(..) => !is_acquire,
                Refusal::Upgrade(..) => task.is_downgraded,
                Refusal::Split | Refusal::Draining | Refusal::Nested(_) => false,
                Refusal::Closed => state.client(name).life >= Life::Closed,
            };
            if is_acquire {
                state.seen.note(Situation::Refused);
            }
            if is_upgrade {
                state.seen.note(Situation::Upgrade);
            }
            if work != Work::Leave && !has_reason {
                state.breaks(Rule::NoRefusalWithoutReason);
            }
            goes_on(state, name, at);
        }
    }
}

fn begin(config: &Config, state: &mut State, name: u8, at: usize, entered: Entered) {
    let Entered {
        entry,
        token,
        mode,
        began,
        ..
    } = entered;
    if let Some(by) = began {
        if by == By::Message {
            state.seen.note(Situation::HandedOff);
        }
        let key = server::number(&entry.key);
        if state.is_believed(name) {
            state.seen.note(Situation::Paused);
        }
        let owner = server::owner(name, entry.owner, mode);
        let used = config.caller(name, at).mode;
        state.begins(config, key, (owner, used), token);
        let own = state.clients[usize::from(name)]
            .machine
            .own(&entry.key, entry.owner);
        if own.is_some_and(|own| own.entries() > 1) {
            state.seen.note(Situation::Joined);
        }
        if state.are_together(key) {
            state.seen.note(Situation::Together);
            if state.is_downgraded_elsewhere(name) {
                state.seen.note(Situation::Downgraded);
            }
        }
    } else {
        state.seen.note(Situation::Nested);
        // The nested call relies on the mode that it asked for.
        state.client(name).tasks[at].is_downgraded = false;
    }
    state.client(name).tasks[at].entries.push((entry, token));
}

/// Sends a request of a call or of the background.
fn send(state: &mut State, name: u8, request: Box<Request>) {
    let (now, by) = (state.now(), request.call);
    if let Ask::Release { min_hold, .. } = request.what {
        let owner = request.claims[0].owner;
        state.client(name).known(owner).is_released = true;
        if !min_hold.is_zero() {
            state.seen.note(Situation::Kept);
        }
    }
    if matches!(request.what, Ask::Acquire { .. })
        && (request.claims.iter()).any(|claim| state.client(name).shares(&claim.key, claim.owner))
    {
        state.seen.note(Situation::Behind);
    }
    let body = Body::of(&request, server::client(name), 0);
    let id = state.client(name).awaits(Asked::Request(request), by, now);
    state.network.send(Message::Request {
        from: name,
        id,
        request: body,
    });
}

fn send_renewal(state: &mut State, name: u8, renew: Renew) {
    let now = state.now();
    let known = *state.client(name).known(renew.owner);
    if known.is_released {
        state.breaks(Rule::NoRenewalAfterRelease);
    }
    if known.lost == Some(LostCause::MaxHold) {
        state.breaks(Rule::NoRenewalAfterMaxHold);
    }
    let request = Body::Renew(renew.for_store(server::client(name)), renew.lease);
    let client = state.client(name);
    let id = client.awaits(Asked::Renewal(Box::new(renew)), None, now);
    state.network.send(Message::Request {
        from: name,
        id,
        request,
    });
}

/// Ends the current call of a caller.
pub(super) fn goes_on(state: &mut State, name: u8, at: usize) {
    let task = &mut state.client(name).tasks[at];
    task.call.0 += 1;
    task.deadline = Time::MAX;
    task.stage = if task.entries.is_empty() {
        Stage::Gone
    } else {
        Stage::Holding
    };
}
