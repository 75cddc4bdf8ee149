//! The clients: each has the machine that ships, a clock, connections, and tasks that use locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    engine::machine::{Ask, CallId, Entry, Machine, Owner, Renew, Request},
    key::Key,
    lease::Time,
    notes::Notes,
    options::LockOptions,
    servers::Answer,
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
    Renew(Renew),
}

impl Sent {
    /// Returns the lease that it asks for, unless it is a renewal or a release.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self {
            Self::Request(request) => match request.what {
                Ask::Acquire { lease, .. } | Ask::Enter { lease, .. } => Some(lease),
                Ask::Lower { .. } => None,
            },
            Self::Renew(_) => None,
        }
    }
}

/// The reply of a server, or how the request failed.
#[derive(Clone, Debug)]
pub(crate) enum Vote {
    Answer(Answer),
    Failed {
        maybe_executed: bool,
        transient: bool,
    },
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) sent: Sent,
    pub(crate) call: Option<CallId>,
    pub(crate) began: u64,
    pub(crate) sent_at: Time,
    /// The reply of each server.
    pub(crate) votes: Vec<Option<Vote>>,
}

/// An entry that a task has to end.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) entry: Entry,
    pub(crate) token: u64,
    pub(crate) in_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Does the next thing.
    Ready,
    Acquiring(CallId),
    Leaving(CallId),
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) doing: Doing,
    pub(crate) entries: Vec<Held>,
    /// Only the latest plan counts.
    pub(crate) ticket: u64,
    /// Whether the request of its call is under way: then it is not polled.
    pub(crate) is_sending: bool,
    /// When its call began, when a call that waits may be refused, and when it has to have ended.
    pub(crate) since: u64,
    pub(crate) not_before: u64,
    pub(crate) deadline: u64,
    /// The keys that its call acquires outside of its holds.
    pub(crate) wants: Vec<usize>,
    pub(crate) is_inside: bool,
    pub(crate) terms: LockOptions,
    /// The lock that it leaves, and whether its call sends the release.
    pub(crate) leaves: Option<(Key, Owner, bool)>,
    /// Whether a request of its call has failed.
    pub(crate) has_failed: bool,
}

impl Task {
    pub(crate) fn new() -> Self {
        Self {
            doing: Doing::Ready,
            entries: Vec::new(),
            ticket: 0,
            is_sending: false,
            since: 0,
            not_before: 0,
            deadline: u64::MAX,
            wants: Vec::new(),
            is_inside: false,
            terms: LockOptions::default(),
            leaves: None,
            has_failed: false,
        }
    }
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
    /// When the latest message arrives: by the server and connection, and back.
    pub(crate) arrivals: BTreeMap<(usize, u8), u64>,
    /// When the latest request of an owner arrives.
    pub(crate) owners: BTreeMap<Owner, u64>,
    /// When the background looks at the schedule.
    pub(crate) due: u64,
    /// Until when it misses notifications.
    pub(crate) deaf_until: u64,
    /// When it began to shut down.
    pub(crate) drained: u64,
    pub(crate) notes: Notes,
}
