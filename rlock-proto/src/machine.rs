//! The protocol of one client: who has which lock, who waits for it, what the store is asked for, and when.
//!
//! A machine does no I/O, reads no clock, and runs no thread. [`Machine::on`] takes an [`Input`] and the time, and
//! returns [`Output`]s. The shell around it sends requests, wakes calls and sleeps until [`Machine::due`]. So a model
//! checker and a simulator can run it as it ships.

mod acquisition;
mod call;
mod doubt;
mod ending;
mod events;
mod hold;
mod input;
mod leave;
mod line;
mod loss;
mod output;
mod ownership;
mod patience;
mod queries;
mod replies;
mod settle;
mod slot;
mod slots;
mod standing;
#[cfg(test)]
mod tests;
mod timer;
mod tokens;
mod turn;
mod unpolled;

use std::time::Duration;

use smallvec::SmallVec;

use self::{
    call::{Acquisition, Call, Calls, Stage, Work},
    patience::Patience,
    slots::Slots,
    timer::{Schedule, Target},
};
pub use self::{
    hold::Hold,
    input::{Event, Failure, Input, Inside, Reply, WantedLock},
    output::{
        Ask, By, Claimed, Entered, HoldEnd, Loss, Output, Outputs, Refusal, Renew, Request,
        Revoked, Step,
    },
    ownership::{Ownership, Phase},
    slot::Slot,
    timer::Timer,
};
use crate::{few::one, key::Key, lease::Time, wait::Spread};

/// The sequence number of an owner.
pub type Owner = u64;

/// A call. The shell gives each a number of its own, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The number of a slot. When no call and no ownership uses it, another key may get it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u32);

/// One acquire within a hold: the outermost, or a nested one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The slot of its key.
    pub slot: SlotId,
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
///
/// # The contract
///
/// The driver passes everything that happens to [`on`](Self::on), in the order in which it happened, with a time that never runs
/// back, and carries out all outputs of an input before it passes the next. It sends each request and returns it with its
/// [`Reply`], or with [`Reply::None`] if none will come. It passes [`Input::Time`] when [`due`](Self::due) has come. It polls a
/// call that an output wakes, and cancels a call whose future was dropped. It must not answer a request twice, nor pass an entry
/// that has left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    slots: Slots,
    calls: Calls,
    cx: Common,
}

/// What all slots and calls share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Common {
    settings: Settings,
    life: Life,
    schedule: Schedule,
    spread: Spread,
    /// The next number of an owner or a request.
    number: u64,
    /// The time of the present input.
    now: Time,
    /// The call that is polled, and when it wants to be woken.
    polled: Option<CallId>,
    wake_at: Time,
    /// The call that has taken its step, while the slots are settled.
    stepped: Option<CallId>,
    outputs: Vec<Output>,
}

/// The room for outputs that stays from input to input. Thousands of renewals may come due at once.
const USUAL_OUTPUTS: usize = 256;

/// The slots that an input may have changed. They are settled when it has been applied.
type Touched = SmallVec<[SlotId; 1]>;

impl Machine {
    /// Makes a machine without locks. `spread` makes its pauses differ from those of other clients.
    #[must_use]
    pub fn new(settings: Settings, spread: Spread) -> Self {
        let cx = Common {
            settings,
            life: Life::Open,
            schedule: Schedule::default(),
            spread,
            number: 1,
            now: Time::default(),
            polled: None,
            wake_at: Time::NEVER,
            stepped: None,
            outputs: Vec::new(),
        };
        Self {
            slots: Slots::default(),
            calls: Calls::new(),
            cx,
        }
    }

    /// Applies an input at this time, and returns what has to be done then, in this order.
    #[must_use = "the driver has to carry out every output"]
    pub fn on(&mut self, input: Input, now: Time) -> Outputs<'_> {
        self.cx.now = self.cx.now.max(now);
        self.cx.outputs.shrink_to(USUAL_OUTPUTS);
        let touched = self.apply(input);
        // What follows may concern the call that was polled.
        self.cx.stepped = self.cx.polled.take();
        for slot in touched {
            self.slots.settle(slot, &mut self.calls, &mut self.cx);
        }
        self.cx.stepped = None;
        self.cx.outputs.drain(..)
    }

    /// Applies an input. Returns the slots that it may have changed.
    fn apply(&mut self, input: Input) -> Touched {
        match input {
            Input::Acquire {
                call,
                locks,
                inside,
                options,
                runs_body,
            } => {
                let is_live = |hold: &Inside| {
                    let own = self.slots.own(hold.slot, hold.owner);
                    own.is_some_and(|own| own.is_live(hold.token))
                };
                if self.cx.life == Life::Draining && !inside.iter().any(is_live) {
                    self.step(Step::Refused(Refusal::Draining));
                    return Touched::new();
                }
                let (slots, now) = (&mut self.slots, self.cx.now);
                let acquisition = Acquisition::new(locks, &inside, options, runs_body, slots, now);
                let work = Work::Acquire(Box::new(acquisition));
                self.calls.insert(call, Call::new(work));
                self.poll(call)
            }
            Input::Leave { entry, end, call } => {
                let leave = |slot: &mut Slot, cx: &mut Common| slot.leave(&entry, end, call, cx);
                self.at(&entry, Step::Left(Ok(())), leave)
            }
            Input::Extend(entry, lease) => {
                let extend = |slot: &mut Slot, cx: &mut Common| slot.extend(&entry, lease, cx);
                self.at(&entry, Step::Refused(entry.over()), extend)
            }
            Input::Detach(entry) => {
                let detach = |slot: &mut Slot, cx: &mut Common| slot.detach(&entry, cx);
                self.at(&entry, Step::Refused(entry.over()), detach)
            }
            Input::Downgrade(entry) => {
                let downgrade = |slot: &mut Slot, cx: &mut Common| slot.downgrade(&entry, cx);
                self.at(&entry, Step::Refused(entry.over()), downgrade)
            }
            Input::Keep(entry) => {
                let keep = |slot: &mut Slot, cx: &mut Common| slot.keep(&entry, cx.now);
                self.at(&entry, Step::Refused(entry.over()), keep)
            }
            Input::Run(entry) => {
                let own = self.slots.own_mut(entry.slot, entry.owner);
                if let Some(hold) = own.and_then(Ownership::hold_mut) {
                    hold.runs_body(entry.number);
                }
                Touched::new()
            }
            Input::Poll(id) if self.calls.contains_key(&id) => self.poll(id),
            Input::Poll(_) => {
                // The client closed while the step of a release was on its way.
                self.step(Step::Left(Ok(())));
                Touched::new()
            }
            Input::Woken {
                call,
                request,
                is_polled,
            } => {
                self.woken(call, request, is_polled);
                Touched::new()
            }
            Input::Cancel(id) => self.cancel(id),
            Input::Reply(request, reply) => self.reply(&request, reply),
            Input::Renewed {
                renew,
                sent_at,
                outcome,
            } => {
                if let Some(slot) = self.slots.get_mut(renew.slot) {
                    slot.renewed(&renew, sent_at, outcome, &mut self.cx);
                }
                one(renew.slot)
            }
            Input::Event(key, owner, event) => self.event(&key, owner, event),
            Input::Time => self.time(),
            Input::Drain => {
                self.cx.life = self.cx.life.max(Life::Draining);
                for (id, call) in &mut self.calls {
                    call.look_whether_polled(*id, &mut self.cx);
                }
                self.slots.ids().into()
            }
            Input::Close => self.close(Life::Closed),
            Input::End => self.close(Life::Ended),
        }
    }

    /// Takes the step of the call that an entry belongs to. `without`: the step if its slot is gone.
    fn at(
        &mut self,
        entry: &Entry,
        without: Step,
        step: impl FnOnce(&mut Slot, &mut Common) -> Step,
    ) -> Touched {
        let slot = self.slots.get_mut(entry.slot);
        let step = slot.map(|slot| step(slot, &mut self.cx));
        self.step(step.unwrap_or(without));
        one(entry.slot)
    }

    /// Emits the next step of the call that the input concerns.
    fn step(&mut self, step: Step) {
        self.cx.outputs.push(Output::Step(step));
    }

    /// Loses all holds, and wakes all calls.
    fn close(&mut self, life: Life) -> Touched {
        self.cx.life = self.cx.life.max(life);
        for slot in self.slots.iter_mut() {
            slot.close(&mut self.cx);
        }
        for id in self.calls.keys().copied().collect::<Vec<_>>() {
            self.refuse_call(id, Refusal::Closed);
            self.cx.wake(id);
        }
        match self.cx.life {
            Life::Ended => Touched::new(),
            _ => self.slots.ids().into(),
        }
    }

    /// Refuses a call that acquires. It keeps no lock and no turn, because its future may never be polled again.
    fn refuse_call(&mut self, id: CallId, why: Refusal) {
        if let Some(acquisition) = call::acquisition(&mut self.calls, id) {
            acquisition.abandon(id, &mut self.slots, &mut self.cx);
            acquisition.stage = Stage::Refused(why);
        }
    }

    /// Takes the next step of a call. Returns its slots.
    fn poll(&mut self, id: CallId) -> Touched {
        let Some(call) = self.calls.get_mut(&id) else {
            return Touched::new();
        };
        (self.cx.polled, self.cx.wake_at) = (Some(id), Time::NEVER);
        let step = match &mut call.work {
            Work::Acquire(acquisition) => acquisition.step(id, &mut self.slots, &mut self.cx),
            Work::End(ending) => ending.step(id, &mut self.slots, &mut self.cx),
        };
        self.take_step(id, step)
    }

    /// Ends a call with its last step, or makes the schedule wake it. Returns its slots.
    fn take_step(&mut self, id: CallId, step: Step) -> Touched {
        let touched = if step.is_last() {
            self.end(id)
        } else if let Some(call) = self.calls.get_mut(&id) {
            let wake_at = self.cx.wake_at;
            if let Some(acquisition) = call.acquisition()
                && step == Step::Wait
                && !acquisition.is_asking()
            {
                acquisition.patience = Patience::until(wake_at.max(self.cx.now));
            }
            call.look_by((wake_at, Timer::Wake), id, &mut self.cx);
            call.slots()
        } else {
            Touched::new()
        };
        self.step(step);
        touched
    }

    /// Ends a call. Returns its slots.
    fn end(&mut self, id: CallId) -> Touched {
        let Some(mut call) = self.calls.remove(&id) else {
            return Touched::new();
        };
        (self.cx.schedule).remove(Target::Call(id), &mut call.due);
        let slots = call.slots();
        if call.acquisition().is_some() {
            slots.iter().for_each(|slot| self.slots.remove_user(*slot));
        }
        slots
    }

    /// Ends a call whose future was dropped. Returns its slots.
    fn cancel(&mut self, id: CallId) -> Touched {
        if let Some(acquisition) = call::acquisition(&mut self.calls, id) {
            acquisition.abandon(id, &mut self.slots, &mut self.cx);
        }
        self.end(id)
    }

    /// Handles every deadline that has passed. Returns the slots that it may have changed.
    fn time(&mut self) -> Touched {
        let mut touched = Touched::new();
        while let Some((at, target)) = self.cx.schedule.take_due(self.cx.now) {
            match target {
                Target::Slot(id) => {
                    self.slots[id].come_due(&mut self.cx);
                    touched.push(id);
                }
                Target::Call(id) => {
                    self.look_at_call(id, at);
                    let slots = self.calls.get(&id).map(Call::slots).unwrap_or_default();
                    for slot in &slots {
                        // The slot of a call that ends its entry may be gone.
                        if let Some(slot) = self.slots.get_mut(*slot) {
                            slot.look_at(id, &mut self.calls, &mut self.cx);
                        }
                    }
                    touched.extend(slots);
                }
            }
        }
        touched
    }
}

impl Common {
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

    /// Reports that the hold with this first entry has ended.
    fn ended(&mut self, own: &Ownership, first: u32, end: HoldEnd) {
        let end = own.lost().map_or(end, |_| HoldEnd::Lost);
        let (owner, renewals) = (own.owner, own.hold().map_or(0, |hold| hold.renewals));
        self.outputs.push(Output::Ended {
            owner,
            first,
            end,
            renewals,
        });
    }
}
