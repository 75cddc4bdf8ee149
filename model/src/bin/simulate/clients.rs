//! A simulated client: the machine that ships, with a clock, connections, and tasks that use locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use rlock_model::requests::{Answer, Body};
use uuid::Uuid;

use crate::{
    key::Key,
    lease::Time,
    machine::{
        CallId, Entry, Failure, Inside, Machine, Owner, Ownership, Renew, Request, WantedLock,
    },
    mode::LockMode,
    notes::Notes,
    options::LockOptions,
    store::{Renewal, Renewed},
};

/// A clock that is too fast or too slow by some millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The world's time at its start, and its own.
    pub(crate) born: u64,
    pub(crate) start: u64,
    pub(crate) drift: i32,
}

impl Clock {
    const MILLION: u128 = 1_000_000;

    fn speed(self) -> u128 {
        Self::MILLION.saturating_add_signed(i128::from(self.drift))
    }

    pub(crate) fn time(self, now: u64) -> Time {
        let passed = u128::from(now - self.born) * self.speed() / Self::MILLION;
        Time::from_nanos(self.start + u64::try_from(passed).expect("a run is short"))
    }

    /// Returns when the clock shows this time.
    pub(crate) fn at(self, time: Time) -> u64 {
        let passed = u128::from(time.nanos().saturating_sub(self.start));
        let passed = passed * Self::MILLION / self.speed() + 1;
        self.born
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Open,
    Draining,
    Closed,
    Ended,
}

/// What a client has sent.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    Request(Box<Request>),
    Renew(Box<Renew>),
}

/// The reply of a server, or how the request failed.
pub(crate) type Vote = Result<Answer, Failure>;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) sent: Sent,
    pub(crate) body: Rc<Body>,
    pub(crate) began: u64,
    pub(crate) sent_at: Time,
    /// The reply of each server. None any more: the outcome is on its way.
    pub(crate) votes: Vec<Option<Vote>>,
}

impl Awaited {
    /// Returns the call that sent it.
    pub(crate) fn call(&self) -> Option<CallId> {
        match &self.sent {
            Sent::Request(request) => request.call,
            Sent::Renew(_) => None,
        }
    }

    /// Returns whether it releases this lock.
    pub(crate) fn releases(&self, key: &Key) -> bool {
        matches!(&*self.body, Body::Release(release, _) if release.key == *key)
    }
}

/// A renewal whose outcome a quorum has decided.
#[derive(Debug)]
pub(crate) struct Confirmed {
    pub(crate) asked: Renewal,
    pub(crate) outcome: Renewed,
    /// For how long a member restores the lock, and until when replies are expected.
    pub(crate) lease: Duration,
    pub(crate) until: Time,
}

/// An entry that a task has to end.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    /// The mode of its hold.
    pub(crate) mode: LockMode,
    pub(crate) token: u64,
    pub(crate) in_body: bool,
    /// Until when the lock stays taken if the entry succeeds.
    pub(crate) kept_until: Option<Time>,
}

impl Held {
    /// Returns the lock as a call inside the hold wants it.
    pub(crate) fn as_wanted(&self) -> WantedLock {
        WantedLock {
            key: self.entry.key.clone(),
            mode: self.mode,
        }
    }

    /// Returns the hold as its nested calls see it.
    pub(crate) fn inside(&self) -> Inside {
        Inside {
            slot: self.entry.slot,
            owner: self.entry.owner,
            token: self.token,
            entry: self.entry.number,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Does the next thing.
    #[default]
    Ready,
    Acquiring(CallId),
    Leaving(CallId),
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they do not depend on each other"
)]
pub(crate) struct Task {
    pub(crate) doing: Doing,
    pub(crate) entries: Vec<Held>,
    /// Only the latest plan counts; none while it waits.
    pub(crate) ticket: u64,
    pub(crate) is_planned: bool,
    /// Whether the request of its call is under way: then it is not polled.
    pub(crate) is_sending: bool,
    /// When its call began, when a call that waits may be refused, and when it has to have ended.
    pub(crate) since: u64,
    pub(crate) not_before: u64,
    pub(crate) deadline: u64,
    /// The keys that its call acquires outside of its holds, and the options of the call.
    pub(crate) wants: Vec<Key>,
    pub(crate) is_inside: bool,
    pub(crate) runs_body: bool,
    pub(crate) terms: LockOptions,
    /// How many requests for locks its call has sent, whether a request has failed, and whether a reply came so late that a
    /// grant had ended.
    pub(crate) asked: u32,
    pub(crate) has_failed: bool,
    pub(crate) was_late: bool,
    /// The lock that it leaves, and whether its call sends the release.
    pub(crate) leaves: Option<(Key, Owner, bool)>,
}

pub(crate) struct Client {
    pub(crate) id: Uuid,
    /// The number of clients before it.
    pub(crate) life_number: u32,
    pub(crate) machine: Machine,
    pub(crate) clock: Clock,
    pub(crate) life: Life,
    pub(crate) paused_until: u64,
    pub(crate) tasks: Vec<Task>,
    /// The tasks of the calls that are polled.
    pub(crate) calls: BTreeMap<CallId, usize>,
    /// Calls that are not polled any more, until they are dropped.
    pub(crate) unpolled: BTreeSet<CallId>,
    pub(crate) awaited: BTreeMap<u64, Awaited>,
    /// The renewals that were decided, for replies that are late.
    pub(crate) confirmed: BTreeMap<u64, Confirmed>,
    /// The fence after the largest one that it has seen.
    pub(crate) floor: u64,
    /// When the latest message arrives: by the server and connection, and back.
    pub(crate) arrivals: BTreeMap<(usize, u8), u64>,
    /// When the latest request of an owner arrives.
    pub(crate) owners: BTreeMap<Owner, u64>,
    /// When the background looks at the schedule.
    pub(crate) due: u64,
    /// Whether it is connected to a master that was replaced.
    pub(crate) at_former: bool,
    /// Until when it misses notifications.
    pub(crate) deaf_until: u64,
    /// When it began to shut down.
    pub(crate) drained: u64,
    pub(crate) notes: Notes,
}

impl Client {
    /// Notes a fence. Its next request passes the one after the largest as a floor.
    pub(crate) fn sees(&mut self, fence: u64) {
        if fence > 0 {
            self.floor = self.floor.max(fence + 1);
        }
    }

    /// Returns the current ownership of a key.
    pub(crate) fn current(&self, key: &Key) -> Option<&Ownership> {
        self.machine.slot(key)?.current()
    }

    /// Returns whether a call may enter a hold.
    pub(crate) fn is_entering(&self) -> bool {
        let enters = |task: &Task| task.is_inside && matches!(task.doing, Doing::Acquiring(_));
        self.tasks.iter().any(enters)
    }

    /// Returns whether no request is on its way, and no call enters a hold.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaited.is_empty() && !self.is_entering()
    }

    /// Returns the requests whose replies are awaited, but for those of calls that are not polled any more.
    pub(crate) fn polled(&self) -> impl Iterator<Item = &Awaited> {
        let awaited = self.awaited.values();
        awaited.filter(|awaited| !self.is_unpolled(awaited))
    }

    /// Returns whether a call that is not polled any more sent a request.
    pub(crate) fn is_unpolled(&self, awaited: &Awaited) -> bool {
        awaited
            .call()
            .is_some_and(|call| self.unpolled.contains(&call))
    }
}
