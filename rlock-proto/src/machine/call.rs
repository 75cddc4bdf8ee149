//! The stages of a call: what an acquire, or an entry that ends, waits for and keeps until then.

use std::{collections::BTreeMap, time::Duration};

use super::{
    By, CallId, Common, Entry, Owner, Ownership, SlotId,
    input::{Failure, Inside, WantedLock},
    output::{Ask, Claimed, Entered, Refusal, Request},
    patience::Patience,
    slot::Slot,
    slots::Slots,
    timer::{Target, Timer},
};
use crate::{
    few::{self, Few, one},
    key::Key,
    lease::Time,
    lost::LostCause,
    mode::LockMode,
    options::{LockOptions, Wait},
    store::Grant,
};

/// The last part of a wait, in which no further request is sent.
const LEAST_REQUEST_TIME: Duration = Duration::from_millis(10);

/// The calls that have not ended.
pub(super) type Calls = BTreeMap<CallId, Call>;

/// Returns a call that acquires.
pub(super) fn acquisition(calls: &mut Calls, id: CallId) -> Option<&mut Acquisition> {
    calls.get_mut(&id)?.acquisition()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) work: Work,
    /// When the schedule wakes it.
    pub(super) due: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Acquire(Box<Acquisition>),
    End(Ending),
}

/// A call that acquires locks, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquisition {
    pub(super) parts: Few<Part>,
    /// The options of all its locks, but for the mode.
    pub(super) options: LockOptions,
    /// Whether a body runs inside, which a loss stops.
    pub(super) runs_body: bool,
    pub(super) started: Time,
    pub(super) deadline: Time,
    pub(super) stage: Stage,
    pub(super) patience: Patience,
    /// Whether the call has sent a request.
    has_asked: bool,
    /// Failures and pauses so far.
    pub(super) failures: u32,
    /// How often the call has asked again because a change of its lock was reported.
    pub(super) confirmations: u8,
    /// The lock that another owner had at the latest request, and for how long.
    pub(super) contended: Option<(usize, Option<Duration>)>,
}

/// What a call has of one of its locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) slot: SlotId,
    pub(super) key: Key,
    pub(super) mode: LockMode,
    /// The hold that the call chain is inside.
    pub(super) inside: Option<Inside>,
    pub(super) entered: Option<Entered>,
    /// The grant that the hold begins with.
    pub(super) grant: Option<Grant>,
    /// The grant of the latest reply.
    pub(super) replied: Option<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The next step follows from the state of its keys.
    Ready,
    /// Waits for the turn of this key.
    Queued(usize),
    /// Has an entry in a shared ownership whose hold began while the call was queued. The entry is not renewed until the
    /// call is polled.
    Joined(usize),
    /// Waits for a report about the lock at this index. Until `keeps_until`, the call keeps its turns for the locks that precede
    /// this one in the order of the keys.
    Waiting {
        index: usize,
        keeps_until: Time,
    },
    /// Has the turn of this key, and waits for a release that its request would overtake.
    Following(usize),
    /// This request is under way.
    Asking(u64),
    /// Pauses. If the wait is over then, this is the outcome, except that a call asks again after `Split`.
    Pausing(Time, Refusal),
    Refused(Refusal),
}

/// A call that waits until its entry has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    pub(super) slot: SlotId,
    pub(super) owner: Owner,
    /// The outcome of the hold itself.
    pub(super) held: Result<(), LostCause>,
    pub(super) outcome: Option<Result<(), LostCause>>,
    pub(super) waits_until: Time,
}

impl Call {
    pub(super) fn new(work: Work) -> Self {
        Self { work, due: None }
    }

    /// Returns the slots of the locks that the call acquires or releases.
    pub(super) fn slots(&self) -> Few<SlotId> {
        match &self.work {
            Work::Acquire(call) => few::collect(call.parts.iter().map(|part| part.slot)),
            Work::End(ending) => one(ending.slot),
        }
    }

    /// Makes the schedule look at the call by this time.
    pub(super) fn look_by(&mut self, deadline: (Time, Timer), id: CallId, cx: &mut Common) {
        let target = Target::Call(id);
        cx.schedule.look_by(deadline, target, &mut self.due);
    }

    pub(super) fn acquisition(&mut self) -> Option<&mut Acquisition> {
        match &mut self.work {
            Work::Acquire(acquisition) => Some(acquisition),
            Work::End(_) => None,
        }
    }

    pub(super) fn ending(&mut self) -> Option<&mut Ending> {
        match &mut self.work {
            Work::Acquire(_) => None,
            Work::End(ending) => Some(ending),
        }
    }

    /// Returns how long a call that acquires keeps what it has.
    pub(super) fn patience(&self) -> Option<&Patience> {
        match &self.work {
            Work::Acquire(call) => Some(&call.patience),
            Work::End(_) => None,
        }
    }

    /// Makes the schedule look at the call as soon as its patience has ended.
    pub(super) fn look_whether_polled(&mut self, id: CallId, cx: &mut Common) {
        if let Some(patience) = self.patience() {
            let after = patience.ends() + Duration::from_nanos(1);
            self.look_by((after, Timer::Unpolled), id, cx);
        }
    }

    /// Returns whether a request of the call is under way, or its reply unread.
    pub(super) fn is_asking(&self) -> bool {
        matches!(&self.work, Work::Acquire(call) if call.is_asking())
    }

    /// Returns whether the call has been refused, and its future has not been polled since.
    pub(super) fn is_refused(&self) -> bool {
        matches!(&self.work, Work::Acquire(call) if matches!(call.stage, Stage::Refused(_)))
    }

    /// Returns the call that acquires, if it waits for this request.
    pub(super) fn asking(&mut self, request: u64) -> Option<&mut Acquisition> {
        let acquisition = self.acquisition()?;
        (acquisition.stage == Stage::Asking(request)).then_some(acquisition)
    }
}

impl Acquisition {
    pub(super) fn new(
        locks: Few<WantedLock>,
        inside: &[Inside],
        options: LockOptions,
        runs_body: bool,
        slots: &mut Slots,
        now: Time,
    ) -> Self {
        let parts = locks.into_iter().map(|lock| {
            let slot = slots.add_user(&lock.key);
            let is_of_key =
                |hold: &&Inside| hold.slot == slot && slots.own(slot, hold.owner).is_some();
            Part {
                slot,
                inside: inside.iter().find(is_of_key).copied(),
                key: lock.key,
                mode: lock.mode,
                entered: None,
                grant: None,
                replied: None,
            }
        });
        Self {
            parts: few::collect(parts),
            options,
            runs_body,
            started: now,
            deadline: match options.wait {
                Wait::Never => now,
                Wait::For(wait) => now + wait,
                Wait::Forever => Time::NEVER,
            },
            stage: Stage::Ready,
            patience: Patience::until(now),
            has_asked: false,
            failures: 0,
            confirmations: 0,
            contended: None,
        }
    }

    /// Returns the options for one of the locks.
    pub(super) fn options(&self, n: usize) -> LockOptions {
        LockOptions {
            mode: self.parts[n].mode,
            ..self.options
        }
    }

    /// Returns whether a request is under way, or its reply unread.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// Starts over behind the other calls, because the turn for this slot was taken back. A call that asks once is refused.
    pub(super) fn lose_turn(&mut self, slot: SlotId) {
        let n = self.part_of(slot);
        self.contended.get_or_insert((n, None));
        self.stage = if self.asks_once() {
            Stage::Refused(self.taken(n, None))
        } else {
            Stage::Ready
        };
        self.drop_grants();
    }

    /// Forgets the grants of the latest reply.
    pub(super) fn drop_grants(&mut self) {
        let drop_grant = |part: &mut Part| (part.grant, part.replied) = (None, None);
        self.parts.iter_mut().for_each(drop_grant);
    }

    /// Returns whether the call asks once and does not wait.
    pub(super) fn asks_once(&self) -> bool {
        self.options.wait.is_none()
    }

    /// Returns the indices of the locks that the call has not entered.
    pub(super) fn lacking(&self) -> Few<usize> {
        if let [part] = &*self.parts
            && part.entered.is_none()
        {
            return one(0);
        }
        let parts = self.parts.iter().enumerate();
        let lacking = parts.filter(|(_, part)| part.entered.is_none());
        lacking.map(|(n, _)| n).collect()
    }

    /// Returns the index of the lock in this slot.
    pub(super) fn part_of(&self, slot: SlotId) -> usize {
        let position = self.parts.iter().position(|part| part.slot == slot);
        position.expect("the call asks for the key")
    }

    /// Returns the outcome of a call whose wait ends while another owner has the lock at this index.
    pub(super) fn taken(&self, n: usize, ttl: Option<Duration>) -> Refusal {
        Refusal::Taken(self.parts[n].key.clone(), ttl)
    }

    /// Returns whether so little of the wait is left that no further request is worth sending.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.deadline.since(now) <= LEAST_REQUEST_TIME
    }

    /// Returns whether the wait is shorter than this time.
    pub(super) fn is_shorter(&self, than: Duration) -> bool {
        self.deadline < self.started + than
    }

    /// Returns the time-out of the next request. The first one has the whole response time-out, because a wait that is shorter
    /// than a round trip must not look like an outage. Once the call knows that the lock is taken, its wait decides. Zero means that
    /// no further request is sent.
    pub(super) fn request_timeout(&self, cx: &Common) -> Duration {
        let most = cx.settings.response_timeout;
        let end = match self.contended {
            Some(_) if !self.asks_once() => self.deadline,
            _ => self.limit(cx),
        };
        if self.has_asked {
            end.since(cx.now).min(most)
        } else {
            most
        }
    }

    /// Returns until when the call waits for replies and for requests of its client that are under way: for a response
    /// time-out even if its wait is shorter.
    pub(super) fn limit(&self, cx: &Common) -> Time {
        let least = self.started + cx.settings.response_timeout;
        self.deadline.max(least)
    }

    /// Returns a request, and notes that the call sends it.
    pub(super) fn sends(
        &mut self,
        id: CallId,
        claims: Few<Claimed>,
        what: Ask,
        timeout: Duration,
        cx: &mut Common,
    ) -> Box<Request> {
        let number = cx.number();
        (self.stage, self.has_asked) = (Stage::Asking(number), true);
        self.patience = Patience::until(cx.now + timeout);
        Box::new(Request {
            number,
            call: Some(id),
            claims,
            what,
            timeout,
        })
    }

    /// Returns whether the call, which has the turn of this slot, can take its next step without a usable ownership there.
    pub(super) fn goes_on_at(&self, slot: &Slot) -> bool {
        match self.stage {
            Stage::Ready => true,
            Stage::Queued(n) | Stage::Waiting { index: n, .. } => self.parts[n].slot == slot.id,
            Stage::Following(n) => self.parts[n].slot == slot.id && !slot.is_releasing(),
            Stage::Joined(_) | Stage::Asking(_) | Stage::Pausing(..) | Stage::Refused(_) => false,
        }
    }

    /// Returns whether the call is queued for this slot and lacks no other lock, so that it may join a shared ownership.
    pub(super) fn may_join(&self, slot: SlotId) -> bool {
        let Stage::Queued(n) = self.stage else {
            return false;
        };
        self.parts[n].slot == slot && self.lacking().len() == 1
    }

    /// Gives the call this entry in a shared ownership. It continues when it is polled, within the grace
    /// period.
    pub(super) fn joins(&mut self, slot: SlotId, own: &Ownership, number: u32, now: Time) {
        let n = self.part_of(slot);
        self.parts[n].enters(own, number, Some(By::Local));
        self.stage = Stage::Joined(n);
        self.patience.extend(now);
    }

    /// Enters the stage after a failed request.
    pub(super) fn fails(&mut self, failure: Failure, cx: &mut Common) {
        // The wait ended during the last request, so an earlier reply is more precise.
        let earlier = self.contended.filter(|_| failure.maybe_executed);
        self.stage = if !failure.transient {
            Stage::Refused(Refusal::Failed)
        } else if !self.is_over(cx.now) {
            self.pause(Refusal::Failed, self.deadline, cx)
        } else if let Some((n, ttl)) = earlier {
            Stage::Pausing(self.deadline, self.taken(n, ttl))
        } else {
            Stage::Refused(Refusal::Failed)
        };
    }

    /// Enters the stage after a reply that no owner has the lock on a majority of the servers. The lock is not taken then, so
    /// a call that hardly waits asks again while the servers have time to reply. After a request without replies, the error
    /// could not say why the call got no lock.
    pub(super) fn on_split(&mut self, taken: Refusal, cx: &mut Common) {
        let (limit, least) = (self.limit(cx), cx.settings.response_timeout / 10);
        self.stage = if cx.now + least < limit || !self.is_over(cx.now) {
            self.pause(Refusal::Split, limit, cx)
        } else if self.asks_once() {
            Stage::Refused(Refusal::Split)
        } else {
            Stage::Pausing(self.deadline, taken)
        };
    }

    /// Returns a pause of at most half of the time left until `end`, so that none reaches it.
    pub(super) fn pause(&mut self, otherwise: Refusal, end: Time, cx: &mut Common) -> Stage {
        let pause = cx.spread().after_failures(self.failures);
        self.failures += 1;
        Stage::Pausing(cx.now + pause.min(end.since(cx.now) / 2), otherwise)
    }
}

impl Part {
    pub(super) fn enters(&mut self, own: &Ownership, number: u32, began: Option<By>) {
        let entry = Entry {
            slot: self.slot,
            key: self.key.clone(),
            owner: own.owner,
            number,
        };
        let hold = own.hold();
        self.entered = hold.map(|hold| hold.entered(entry, own.mode, began));
    }
}
