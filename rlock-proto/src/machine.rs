//! The protocol of one client: who has which lock, who waits for it, what the store is asked for, and when.
//!
//! A machine does no I/O, reads no clock, and runs no thread. [`Machine::on`] takes an [`Input`] and the time, and
//! returns [`Output`]s. The shell around it sends requests, wakes calls and sleeps until [`Machine::due`]. So a model
//! checker and a simulator can run it as it ships.

mod acquisition;
mod attempts;
mod call;
mod count;
mod doubt;
mod hold;
mod input;
mod leave;
mod output;
mod ownership;
mod patience;
mod phase;
mod release;
mod renewals;
mod schedule;
mod slot;
mod standing;
#[cfg(test)]
mod tests;
mod tokens;

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;

use self::{
    call::{Acquisition, Call, Leaving, Stage, Work},
    schedule::{Schedule, Target},
};
pub use self::{
    hold::Hold,
    input::{Event, Failure, Input, Inside, Reply},
    output::{
        Ask, By, Claimed, Entered, HoldEnd, Loss, Output, Outputs, Refusal, Renew, Request,
        Revoked, Step,
    },
    ownership::Ownership,
    phase::Phase,
    slot::Slot,
};
use crate::{
    few::{Few, one},
    key::Key,
    lease::Time,
    lost::LostCause,
    store::GRACE,
    wait::Spread,
};

/// How long a call may take until its next request, including its pauses after failures.
const IDLE: Duration = GRACE.saturating_mul(2);

/// The sequence number of an owner.
pub type Owner = u64;

/// A call. The shell gives each a number of its own, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One acquire within a hold: the outermost, or a nested one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The key of its lock.
    pub key: Key,
    /// The owner of its hold.
    pub owner: Owner,
    /// Its number within the ownership.
    pub number: u32,
}

/// What stays the same while a client lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a request waits for its reply.
    pub response_timeout: Duration,
    /// How many calls are served in a row while other clients wait.
    pub local_handovers: usize,
    /// Whether the store counts nested entries.
    pub counts_entries: bool,
    /// Whether replicas confirm each hold, so that no hold leaves its ownership to the next.
    pub replicas: bool,
    /// Whether a majority of servers decides. Then an acquire may roll its grants back.
    pub needs_majority: bool,
    /// How long the store keeps a fence after the lease with which it was set.
    pub fence_retention: Duration,
    /// The number of tokens of a fence: [`TOKENS`](crate::store::TOKENS), or fewer, so that a model needs new fences sooner.
    pub tokens: u64,
}

/// Whether calls may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Life {
    Open,
    /// Only calls inside a hold begin.
    Draining,
    Closed,
    /// Nothing is sent any more.
    Ended,
}

/// The protocol of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    slots: BTreeMap<Key, Box<Slot>>,
    cx: Context,
}

/// All of the machine but its slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Context {
    settings: Settings,
    life: Life,
    calls: BTreeMap<CallId, Call>,
    schedule: Schedule,
    spread: Spread,
    /// The next number of an owner or a request.
    number: u64,
    /// The time of the present input.
    now: Time,
    /// The call that is polled, and when it wants to be woken.
    polled: Option<CallId>,
    wake_at: Time,
    /// The call that has taken its step.
    stepped: Option<CallId>,
    outputs: Outputs,
}

impl Machine {
    /// Makes a machine without locks. `spread` makes its pauses differ from those of other clients.
    #[must_use]
    pub fn new(settings: Settings, spread: Spread) -> Self {
        let cx = Context {
            settings,
            life: Life::Open,
            calls: BTreeMap::new(),
            schedule: Schedule::default(),
            spread,
            number: 1,
            now: Time::default(),
            polled: None,
            wake_at: Time::NEVER,
            stepped: None,
            outputs: Outputs::new(),
        };
        let slots = BTreeMap::new();
        Self { slots, cx }
    }

    /// Applies an input at this time, and returns what has to be done then, in this order.
    pub fn on(&mut self, input: Input, now: Time) -> Outputs {
        self.cx.now = self.cx.now.max(now);
        let keys = self.apply(input);
        // What follows may concern the call that was polled.
        self.cx.stepped = self.cx.polled.take();
        for key in &keys {
            self.at(key, |_, _| {});
        }
        self.cx.stepped = None;
        std::mem::take(&mut self.cx.outputs)
    }

    /// Returns when the next deadline comes.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.cx.schedule.first()
    }

    /// Applies an input. Returns the keys whose slots it leaves unsettled.
    fn apply(&mut self, input: Input) -> Few<Key> {
        match input {
            Input::Acquire {
                call,
                keys,
                terms,
                is_inside,
            } => {
                if self.cx.life == Life::Draining && !is_inside {
                    let refused = Step::Refused(Refusal::Draining);
                    self.cx.outputs.push(Output::Step(refused));
                    return Few::new();
                }
                let acquisition = Acquisition::new(keys, terms, self.cx.now);
                self.poll(call, Call::new(Work::Acquire(Box::new(acquisition))))
            }
            Input::Leave { entry, end, call } => {
                let step = match self.slots.get_mut(&entry.key) {
                    Some(slot) => slot.leave(&entry, end, call, &mut self.cx),
                    None => Step::Left(Ok(())),
                };
                self.cx.outputs.push(Output::Step(step));
                one(entry.key)
            }
            Input::Downgrade(entry) => {
                let step = match self.slots.get_mut(&entry.key) {
                    Some(slot) => slot.downgrade(&entry, &mut self.cx),
                    None => Step::Left(Err(LostCause::Released)),
                };
                self.cx.outputs.push(Output::Step(step));
                one(entry.key)
            }
            Input::Keep(entry) => {
                let step = match self.slots.get_mut(&entry.key) {
                    Some(slot) => slot.keep(&entry, self.cx.now),
                    None => Step::Left(Err(LostCause::Released)),
                };
                self.cx.outputs.push(Output::Step(step));
                one(entry.key)
            }
            Input::Run(entry) => {
                let own = self.own_mut(&entry.key, entry.owner);
                if let Some(hold) = own.and_then(Ownership::hold_mut) {
                    hold.runs_body(entry.number);
                }
                Few::new()
            }
            Input::Poll(id) => {
                if let Some(call) = self.cx.calls.remove(&id) {
                    return self.poll(id, call);
                }
                // The client closed while the step of a release was on its way.
                self.cx.outputs.push(Output::Step(Step::Left(Ok(()))));
                Few::new()
            }
            Input::Woken {
                call,
                request,
                is_polled,
            } => {
                self.woken(call, request, is_polled);
                Few::new()
            }
            Input::Cancel(id) => self.cancel(id),
            Input::Reply(request, reply) => self.reply(&request, reply),
            Input::Event(
                key,
                Some(owner),
                Event::Granted { mode, .. } | Event::Retry { mode, .. },
            ) if self.own(&key, owner).is_none() => {
                let (slot, cx) = self.slot_mut(&key);
                slot.decline(owner, mode, cx);
                one(key)
            }
            Input::Event(key, owner, event) => {
                self.at(&key, |slot, cx| {
                    let owners = slot.ownerships.iter().map(|own| own.owner);
                    let meant = owners.filter(|own| owner.is_none_or(|owner| owner == *own));
                    for owner in meant.collect::<SmallVec<[Owner; 1]>>() {
                        slot.on(owner, event, cx);
                    }
                });
                Few::new()
            }
            Input::Time => self.time(),
            Input::Drain => {
                self.cx.life = self.cx.life.max(Life::Draining);
                for id in self.cx.calls.keys().copied().collect::<Vec<_>>() {
                    self.cx.look_whether_polled(id);
                }
                self.slots.keys().cloned().collect()
            }
            Input::Close => self.close(Life::Closed),
            Input::End => self.close(Life::Ended),
        }
    }

    /// Loses all holds, and wakes all calls.
    fn close(&mut self, life: Life) -> Few<Key> {
        self.cx.life = self.cx.life.max(life);
        for slot in self.slots.values_mut() {
            slot.close(&mut self.cx);
        }
        let calls: Vec<CallId> = self.cx.calls.keys().copied().collect();
        for id in calls {
            self.give_up(id, Refusal::Closed);
            self.cx.wake(id);
        }
        match self.cx.life {
            Life::Ended => Few::new(),
            _ => self.slots.keys().cloned().collect(),
        }
    }

    /// Refuses a call that acquires. Its future may never be polled again, so it keeps no lock and no turn.
    fn give_up(&mut self, id: CallId, why: Refusal) {
        if let Some(mut call) = self.cx.calls.remove(&id) {
            if let Some(acquisition) = call.acquisition() {
                self.abandon(id, acquisition);
                acquisition.stage = Stage::Refused(why);
            }
            self.cx.calls.insert(id, call);
        }
    }

    /// Takes the next step of a call. Returns its keys.
    fn poll(&mut self, id: CallId, mut call: Call) -> Few<Key> {
        let keys = call.keys();
        (self.cx.polled, self.cx.wake_at) = (Some(id), Time::NEVER);
        let step = match &mut call.work {
            Work::Acquire(acquisition) => {
                let step = self.acquire_step(id, acquisition);
                if step == Step::Wait && !matches!(acquisition.stage, Stage::Asking(_)) {
                    acquisition.acts_by = self.cx.wake_at.max(self.cx.now) + IDLE;
                    acquisition.is_reminded = false;
                }
                step
            }
            Work::Leave(leaving) => self.leave_step(id, leaving),
        };
        if step.is_last() {
            self.cx.schedule.remove(Target::Call(id), &mut call.due);
        } else {
            self.cx.calls.insert(id, call);
            self.cx.look_at_call(id, self.cx.wake_at);
        }
        self.cx.outputs.push(Output::Step(step));
        keys
    }

    /// Ends a call whose future was dropped. Returns its keys.
    fn cancel(&mut self, id: CallId) -> Few<Key> {
        let Some(mut call) = self.cx.calls.remove(&id) else {
            return Few::new();
        };
        self.cx.schedule.remove(Target::Call(id), &mut call.due);
        if let Some(acquisition) = call.acquisition() {
            self.abandon(id, acquisition);
        }
        call.keys()
    }

    /// Applies the reply to a request, and polls the call that sent it unless the future was dropped. Returns the keys.
    fn reply(&mut self, request: &Request, reply: Reply) -> Few<Key> {
        let is_dropped = reply == Reply::None;
        match self.answered(request, reply) {
            Some((id, call)) if !is_dropped => self.poll(id, call),
            dropped => {
                self.cx.calls.extend(dropped);
                let claims = request.claims.iter();
                claims.map(|claim| claim.key.clone()).collect()
            }
        }
    }

    /// Applies the reply to a request. Returns the call that sent it, if that still exists.
    fn answered(&mut self, request: &Request, reply: Reply) -> Option<(CallId, Call)> {
        let (is_dropped, id) = (reply == Reply::None, request.call);
        let claim = &request.claims[0];
        match request.what {
            Ask::Acquire { lease, waits } => {
                let mut call = self.cx.calls.remove(&id?);
                let asking = call.as_mut().and_then(|call| call.asking(request.number));
                let reply = reply.acquired();
                self.acquired(request, (lease, waits), reply, is_dropped, asking);
                Some((id?, call?))
            }
            Ask::SetCount { .. } | Ask::Downgrade { .. } => {
                let slot = self.slots.get_mut(&claim.key)?;
                slot.shown(request, reply.applied(), &mut self.cx);
                None
            }
            Ask::Release { held, give_up, .. } => {
                let is_final = matches!(&reply, Reply::Failed(failure) if !failure.transient);
                let (slot, reply) = (self.slots.get_mut(&claim.key), reply.applied());
                let released =
                    slot.and_then(|slot| slot.released(request, held, reply, &mut self.cx));
                let leaving = Leaving {
                    key: claim.key.clone(),
                    owner: claim.owner,
                    held,
                    outcome: released.map(|outcome| outcome.and(held)),
                    // The background makes the further attempts.
                    give_up: if is_final { self.cx.now } else { give_up },
                };
                Some((id?, Call::new(Work::Leave(leaving))))
            }
        }
    }

    /// Handles every deadline that has passed. Returns the keys whose slots it leaves unsettled.
    fn time(&mut self) -> Few<Key> {
        let mut keys = Few::new();
        while let Some((at, target, key)) = self.cx.schedule.take_due(self.cx.now) {
            match (target, key) {
                (Target::Own(owner), Some(key)) => {
                    self.at(&key, |slot, cx| slot.come_due(owner, cx));
                }
                (Target::Call(id), _) => {
                    let (now, drains) = (self.cx.now, self.cx.is_draining());
                    let Some(call) = self.cx.calls.get_mut(&id) else {
                        continue;
                    };
                    call.due = None;
                    let of_call = call.keys();
                    let is_idle = call.is_unpolled(now);
                    let is_given_up = drains && is_idle && call.is_reminded();
                    let is_late = now.since(at) >= GRACE / 2;
                    if is_idle && (drains || is_late) && !call.is_reminded() {
                        call.remind(now);
                    }
                    self.cx.wake(id);
                    if is_given_up {
                        self.give_up(id, Refusal::Draining);
                    } else if drains {
                        self.cx.look_whether_polled(id);
                    }
                    for key in &of_call {
                        if let Some(slot) = self.slots.get_mut(key) {
                            slot.look_at(id, &mut self.cx);
                        }
                    }
                    keys.extend(of_call);
                }
                (Target::Own(_), None) => {}
            }
        }
        keys
    }

    /// Returns the slot of a key, which may be new.
    fn slot_mut(&mut self, key: &Key) -> (&mut Slot, &mut Context) {
        let slot = self.slots.entry(key.clone());
        let slot = slot.or_insert_with(|| Box::new(Slot::new(key.clone())));
        (slot, &mut self.cx)
    }

    /// Changes a slot, does what follows from its state, and forgets it if it is empty.
    fn at(&mut self, key: &Key, change: impl FnOnce(&mut Slot, &mut Context)) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        change(slot, &mut self.cx);
        slot.settle(&mut self.cx);
        if slot.is_empty() {
            self.slots.remove(key);
        } else if cfg!(debug_assertions) {
            slot.check(&self.cx);
        }
    }

    fn own_mut(&mut self, key: &Key, owner: Owner) -> Option<&mut Ownership> {
        self.slots.get_mut(key)?.find_mut(owner)
    }

    /// Returns an ownership.
    #[must_use]
    pub fn own(&self, key: &Key, owner: Owner) -> Option<&Ownership> {
        self.slots.get(key)?.find(owner)
    }

    /// Returns the slot of a key that the client uses.
    #[must_use]
    pub fn slot(&self, key: &Key) -> Option<&Slot> {
        Some(self.slots.get(key)?)
    }

    /// Returns the key of the lock that another client has, while this call waits for it with its turn.
    #[must_use]
    pub fn contended(&self, id: CallId) -> Option<&Key> {
        let Work::Acquire(call) = &self.cx.calls.get(&id)?.work else {
            return None;
        };
        let is_contended = |key: &&Key| {
            let slot = self.slots.get(*key).filter(|slot| slot.turn == Some(id));
            let own = slot.and_then(|slot| slot.current());
            own.is_some_and(|own| own.standing.ask_at().is_some())
        };
        call.locks.iter().map(|lock| &lock.key).find(is_contended)
    }

    /// Returns how long a lock is kept for a call that is not being polled.
    #[must_use]
    pub fn unpolled(&self, key: &Key, now: Time) -> Option<Duration> {
        self.slots.get(key)?.unpolled(&self.cx, now)
    }

    /// Returns the slots of all keys that the client uses.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values().map(|slot| &**slot)
    }

    /// Returns the ownerships of all keys.
    pub fn ownerships(&self) -> impl Iterator<Item = &Ownership> {
        self.slots.values().flat_map(|slot| slot.ownerships.iter())
    }

    /// Returns whether no call or hold is left.
    pub fn is_drained(&self) -> bool {
        !self.is_called() && !self.ownerships().any(Ownership::is_owned)
    }

    /// Returns whether no call is left, and no body runs.
    pub fn is_quiet(&self) -> bool {
        let mut holds = self.ownerships().filter_map(Ownership::hold);
        !self.is_called() && !holds.any(Hold::has_body)
    }

    /// Returns whether a call is left that may still have a lock. A call that was refused only has to learn of it.
    fn is_called(&self) -> bool {
        self.cx.calls.values().any(|call| !call.is_refused())
    }

    /// Returns whether everything is released.
    #[must_use]
    pub fn is_released(&self) -> bool {
        !self.ownerships().any(Ownership::is_releasing)
    }
}

impl Context {
    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number - 1
    }

    fn spread(&mut self) -> Spread {
        self.spread = self.spread.next();
        self.spread
    }

    fn is_closed(&self) -> bool {
        self.life >= Life::Closed
    }

    fn is_draining(&self) -> bool {
        self.life != Life::Open
    }

    /// Makes the shell poll a call, unless it is being polled.
    fn wake(&mut self, call: CallId) {
        if self.polled != Some(call) && self.outputs.last() != Some(&Output::Wake(call)) {
            self.outputs.push(Output::Wake(call));
        }
    }

    /// Makes the polled call wait until this time at the latest.
    fn wait(&mut self, until: Time) -> Step {
        self.wake_at = until;
        Step::Wait
    }

    /// Makes the schedule look at a call when it is known whether it is polled.
    fn look_whether_polled(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(&id).and_then(Call::acquisition) {
            let at = call.acts_by + Duration::from_nanos(1);
            self.look_at_call(id, at);
        }
    }

    /// Makes the schedule look at a call by this time.
    fn look_at_call(&mut self, id: CallId, at: Time) {
        if let Some(call) = self.calls.get_mut(&id) {
            self.schedule
                .look_by(at, Target::Call(id), None, &mut call.due);
        }
    }

    /// Reports that the hold with this first entry has ended.
    fn ended(&mut self, own: &Ownership, first: u32, end: HoldEnd) {
        let end = own.lost.map_or(end, |_| HoldEnd::Lost);
        let (owner, renewals) = (own.owner, own.hold().map_or(0, |hold| hold.renewals));
        self.outputs.push(Output::Ended {
            owner,
            first,
            end,
            renewals,
        });
    }
}
