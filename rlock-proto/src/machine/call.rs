//! The calls: those that acquire locks, and those that wait until their entry has ended.

use std::time::Duration;

use super::{
    By, CallId, Context, Entry, IDLE, Owner, Ownership,
    input::{Failure, Inside},
    output::{Ask, Claimed, Entered, Refusal, Request},
};
use crate::{
    few::{self, Few, one},
    key::Key,
    lease::Time,
    lost::LostCause,
    mode::LockMode,
    options::{LockOptions, Wait},
    store::{GRACE, Grant},
};

/// The last part of a wait, in which no further request is sent.
const LEAST_REQUEST_TIME: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) work: Work,
    /// When the schedule wakes it.
    pub(super) due: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Acquire(Box<Acquisition>),
    Leave(Leaving),
}

/// A call that acquires locks, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Acquisition {
    pub(super) locks: Few<Wanted>,
    pub(super) terms: LockOptions,
    pub(super) started: Time,
    pub(super) deadline: Time,
    pub(super) stage: Stage,
    /// The latest time at which the call acts next. After that, it is not being polled.
    pub(super) acts_by: Time,
    /// Whether that time was extended once, because all of the process may have stood still.
    pub(super) is_reminded: bool,
    /// Whether the call has sent a request.
    has_asked: bool,
    /// Failures and pauses so far.
    pub(super) failures: u32,
    /// How often the call has asked again because a change of its lock was reported.
    pub(super) confirmations: u8,
    /// The lock that another owner had at the latest request, and for how long.
    pub(super) contended: Option<(usize, Option<Duration>)>,
}

/// A lock that a call wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) mode: LockMode,
    /// The hold that the call chain is inside.
    pub(super) inside: Option<Inside>,
    pub(super) entered: Option<Entered>,
    /// The grant that the hold begins with, from the latest request.
    pub(super) grant: Option<Grant>,
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
    /// Waits for a report about the lock of this key.
    Waiting(usize),
    /// This request is under way.
    Asking(u64),
    /// Pauses. If the wait is over then, this is the outcome, except that a call asks again after `Split`.
    Pausing(Time, Refusal),
    Refused(Refusal),
}

/// A call that waits until its entry has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leaving {
    pub(super) key: Key,
    pub(super) owner: Owner,
    /// The outcome of the hold itself.
    pub(super) held: Result<(), LostCause>,
    pub(super) outcome: Option<Result<(), LostCause>>,
    pub(super) give_up: Time,
}

impl Call {
    pub(super) fn new(work: Work) -> Self {
        Self { work, due: None }
    }

    /// Returns the keys that the call concerns.
    pub(super) fn keys(&self) -> Few<Key> {
        match &self.work {
            Work::Acquire(call) => few::collect(call.locks.iter().map(|lock| lock.key.clone())),
            Work::Leave(leaving) => one(leaving.key.clone()),
        }
    }

    pub(super) fn acquisition(&mut self) -> Option<&mut Acquisition> {
        match &mut self.work {
            Work::Acquire(acquisition) => Some(acquisition),
            Work::Leave(_) => None,
        }
    }

    pub(super) fn leaving(&mut self) -> Option<&mut Leaving> {
        match &mut self.work {
            Work::Acquire(_) => None,
            Work::Leave(leaving) => Some(leaving),
        }
    }

    /// Returns the terms of a call that acquires this key, and the mode.
    pub(super) fn terms(&self, key: &Key) -> Option<(&LockOptions, LockMode)> {
        match &self.work {
            Work::Acquire(call) => {
                let lock = call.locks.iter().find(|lock| lock.key == *key)?;
                Some((&call.terms, lock.mode))
            }
            Work::Leave(_) => None,
        }
    }

    /// Returns the latest time at which the call acts next.
    pub(super) fn acts_by(&self) -> Time {
        match &self.work {
            Work::Acquire(call) => call.acts_by,
            Work::Leave(_) => Time::default(),
        }
    }

    /// Returns whether a request of the call is under way, or its reply unread.
    pub(super) fn is_asking(&self) -> bool {
        matches!(&self.work, Work::Acquire(call) if matches!(call.stage, Stage::Asking(_)))
    }

    /// Returns whether the call has a request under way, or is about to send one.
    pub(super) fn acts_soon(&self) -> bool {
        let stage = match &self.work {
            Work::Acquire(call) => &call.stage,
            Work::Leave(_) => return false,
        };
        let asks_again = matches!(stage, Stage::Pausing(_, Refusal::Split));
        asks_again || matches!(stage, Stage::Ready | Stage::Queued(_) | Stage::Asking(_))
    }

    /// Returns whether the call has been refused, and its future has not been polled since.
    pub(super) fn is_refused(&self) -> bool {
        matches!(&self.work, Work::Acquire(call) if matches!(call.stage, Stage::Refused(_)))
    }

    pub(super) fn is_unpolled(&self, now: Time) -> bool {
        matches!(&self.work, Work::Acquire(call) if now > call.acts_by)
    }

    /// Returns whether the call has had a last grace period.
    pub(super) fn is_reminded(&self) -> bool {
        matches!(&self.work, Work::Acquire(call) if call.is_reminded)
    }

    /// Gives a call that is not polled a last grace period.
    pub(super) fn remind(&mut self, now: Time) {
        if let Some(call) = self.acquisition() {
            (call.is_reminded, call.acts_by) = (true, now + GRACE);
        }
    }

    /// Returns the call that acquires, if it waits for this request.
    pub(super) fn asking(&mut self, request: u64) -> Option<&mut Acquisition> {
        let acquisition = self.acquisition()?;
        (acquisition.stage == Stage::Asking(request)).then_some(acquisition)
    }

    /// Starts over behind the other calls, because the turn for this key was taken back. A call that asks once is refused.
    pub(super) fn lose_turn(&mut self, key: &Key) {
        if let Some(call) = self.acquisition() {
            let at = call.position(key);
            call.contended.get_or_insert((at, None));
            call.stage = if call.asks_once() {
                Stage::Refused(call.taken(at, None))
            } else {
                Stage::Ready
            };
            call.locks.iter_mut().for_each(|lock| lock.grant = None);
        }
    }
}

impl Acquisition {
    pub(super) fn new(
        keys: Few<(Key, LockMode, Option<Inside>)>,
        terms: LockOptions,
        now: Time,
    ) -> Self {
        let locks = keys.into_iter().map(|(key, mode, inside)| Wanted {
            key,
            mode,
            inside,
            entered: None,
            grant: None,
        });
        Self {
            locks: few::collect(locks),
            terms,
            started: now,
            deadline: match terms.wait {
                Wait::Never => now,
                Wait::For(wait) => now + wait,
                Wait::Forever => Time::NEVER,
            },
            stage: Stage::Ready,
            acts_by: now,
            is_reminded: false,
            has_asked: false,
            failures: 0,
            confirmations: 0,
            contended: None,
        }
    }

    /// Returns whether the call asks once and does not wait.
    pub(super) fn asks_once(&self) -> bool {
        self.terms.wait.is_none()
    }

    /// Returns the indices of the locks that the call has not entered.
    pub(super) fn fresh(&self) -> Few<usize> {
        if let [lock] = &*self.locks
            && lock.entered.is_none()
        {
            return one(0);
        }
        let locks = self.locks.iter().enumerate();
        let fresh = locks.filter(|(_, lock)| lock.entered.is_none());
        fresh.map(|(at, _)| at).collect()
    }

    /// Returns the index of a key.
    pub(super) fn position(&self, key: &Key) -> usize {
        let position = self.locks.iter().position(|lock| lock.key == *key);
        position.expect("the call asks for the key")
    }

    /// Returns the outcome of a call whose wait ends while another owner has the lock at this index.
    pub(super) fn taken(&self, at: usize, ttl: Option<Duration>) -> Refusal {
        Refusal::Taken(self.locks[at].key.clone(), ttl)
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
    /// than a round trip must not look like an outage. Once the call knows that the lock is taken, its wait decides.
    pub(super) fn request_timeout(&self, cx: &Context) -> Duration {
        let most = cx.settings.response_timeout;
        let end = match self.contended {
            Some(_) => self.deadline,
            None => self.limit(cx),
        };
        match end.since(cx.now) {
            left if self.has_asked && !left.is_zero() => left.min(most),
            // The call may have been polled late.
            _ => most,
        }
    }

    /// Returns until when the call waits for replies and for requests of its client that are under way: for a response
    /// time-out even if its wait is shorter.
    pub(super) fn limit(&self, cx: &Context) -> Time {
        let least = self.started + cx.settings.response_timeout;
        self.deadline.max(least)
    }

    /// Returns a request, which is sent now.
    pub(super) fn sends(
        &mut self,
        id: CallId,
        claims: Few<Claimed>,
        what: Ask,
        timeout: Duration,
        cx: &mut Context,
    ) -> Box<Request> {
        let number = cx.number();
        (self.stage, self.has_asked) = (Stage::Asking(number), true);
        (self.acts_by, self.is_reminded) = (cx.now + timeout + IDLE, false);
        Box::new(Request {
            number,
            call: Some(id),
            claims,
            what,
            timeout,
        })
    }

    /// Refuses an attempt for the same as another one, whose request the store has refused, if it was sent since this one
    /// began.
    pub(super) fn follow_refusal(&mut self, key: &Key, mode: LockMode, sent_at: Time) {
        let at = self.position(key);
        if self.stage == Stage::Ready && self.locks[at].mode == mode && self.started < sent_at {
            self.stage = Stage::Refused(self.taken(at, None));
        }
    }

    /// Returns whether the call is queued for this key, and wants nothing but to join its shared ownership.
    pub(super) fn may_join(&self, key: &Key) -> bool {
        let Stage::Queued(at) = self.stage else {
            return false;
        };
        let lock = &self.locks[at];
        lock.key == *key && lock.mode == LockMode::Shared && self.fresh().len() == 1
    }

    /// Notes that the call has joined a shared ownership with this entry. It continues when it is polled, within the grace
    /// period.
    pub(super) fn joins(&mut self, key: &Key, own: &Ownership, number: u32, now: Time) {
        let at = self.position(key);
        self.locks[at].enters(own, number, Some(By::Local));
        (self.stage, self.acts_by) = (Stage::Joined(at), now + GRACE);
    }

    /// Takes the entry back from a call that has joined a shared ownership and is not polled. Its next poll asks again.
    pub(super) fn take_entry_back(&mut self, now: Time) -> Option<Entry> {
        let Stage::Joined(at) = self.stage else {
            return None;
        };
        let entered = self.locks[at].entered.take_if(|_| now >= self.acts_by)?;
        self.stage = Stage::Ready;
        Some(entered.entry)
    }

    /// Enters the stage after a failed request.
    pub(super) fn fails(&mut self, failure: Failure, cx: &mut Context) {
        // The wait ended during the last request, so an earlier reply is more precise.
        let earlier = self.contended.filter(|_| failure.maybe_executed);
        self.stage = if !failure.transient {
            Stage::Refused(Refusal::Failed)
        } else if !self.is_over(cx.now) {
            self.pause(Refusal::Failed, self.deadline, cx)
        } else if let Some((at, ttl)) = earlier {
            Stage::Pausing(self.deadline, self.taken(at, ttl))
        } else {
            Stage::Refused(Refusal::Failed)
        };
    }

    /// Enters the stage after a reply that no owner has the lock on a majority of the servers. The lock is not taken then, so
    /// a call that hardly waits asks again.
    pub(super) fn on_split(&mut self, taken: Refusal, cx: &mut Context) {
        let limit = self.limit(cx);
        self.stage = if cx.now + LEAST_REQUEST_TIME < limit {
            self.pause(Refusal::Split, limit, cx)
        } else if self.asks_once() {
            Stage::Refused(Refusal::Split)
        } else {
            Stage::Refused(taken)
        };
    }

    /// Returns a pause of at most half of the time left until `end`, so that none reaches it.
    pub(super) fn pause(&mut self, otherwise: Refusal, end: Time, cx: &mut Context) -> Stage {
        let pause = cx.spread().after_failures(self.failures);
        self.failures += 1;
        Stage::Pausing(cx.now + pause.min(end.since(cx.now) / 2), otherwise)
    }
}

impl Wanted {
    pub(super) fn enters(&mut self, own: &Ownership, number: u32, began: Option<By>) {
        let entry = Entry {
            key: self.key.clone(),
            owner: own.owner,
            number,
        };
        let hold = own.hold();
        self.entered = hold.map(|hold| hold.entered(entry, own.mode, began));
    }
}
