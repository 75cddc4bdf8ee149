//! A server with the rules of the embedded store, whose clock and fences move only when an operation moves them, so that it can
//! be compared with real servers.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    embedded::{self, State, WaitQueues},
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    requests::{self, Answer, Body},
    store::{Acquired, Notification, QUEUE_LIFETIME, QueuePlace, StoredLock, TakenBy},
};

/// How long a member of a quorum remembers its last release.
const RELEASED: Duration = Duration::from_secs(61);

/// The fences of a server. As in the embedded store, all keys have one counter.
#[derive(Clone, Copy)]
struct Fences {
    /// Zero: none.
    last: u64,
    /// The clock in units of fences. It matters only after a loss of data, so it advances only then.
    clock: u64,
    /// The floor of the request that is executed.
    floor: u64,
}

impl embedded::Fences for Fences {
    fn next(&mut self) -> u64 {
        self.last = requests::least(self.clock, self.floor).max(self.last + 1);
        self.last
    }

    fn last(&self) -> u64 {
        self.last
    }
}

impl requests::Fences for Fences {
    /// The fences of other keys that were lost were smaller than the clock.
    fn raise(&mut self, least: u64) {
        if self.last == 0 {
            self.last = self.clock - 1;
        }
        self.last = self.last.max(least);
    }
}

impl Default for Fences {
    fn default() -> Self {
        Self {
            last: 0,
            clock: 1,
            floor: 0,
        }
    }
}

static KEYS: LazyLock<[Key; 2]> =
    LazyLock::new(|| ["0", "1"].map(|text| Key::parse(text).expect("it is valid")));

/// Returns the key with this number.
#[must_use]
pub fn key(number: u8) -> Key {
    KEYS[usize::from(number)].clone()
}

/// Returns the number of a key.
pub(crate) fn number(key: &Key) -> u8 {
    key.as_str().as_bytes()[0] - b'0'
}

/// Returns the identity of the client with this number.
#[must_use]
pub fn client(number: u8) -> Uuid {
    Uuid::from_u128(number.into())
}

/// Returns an owner of the client with this number.
#[must_use]
pub fn owner(of: u8, sequence: u64, mode: LockMode) -> OwnerId {
    OwnerId::new(client(of), sequence, mode)
}

/// A server: its clock, its locks and the connected clients.
pub(crate) struct Server {
    now: Time,
    state: State<Fences>,
    /// When each wait queue ends, unless an owner joins it.
    queues: BTreeMap<Key, Time>,
    /// Whether it is a member of a quorum.
    is_member: bool,
}

impl Server {
    /// Creates an empty server with this time, which may be a member of a quorum.
    pub(crate) fn new(now: Time, is_member: bool) -> Self {
        Self {
            now,
            state: State::default(),
            queues: BTreeMap::new(),
            is_member,
        }
    }

    /// Advances the time. What has ended is removed.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for key in KEYS.iter() {
            self.state.inspect(key, self.now);
            let ends = self.queues.get(key).is_none_or(|ends| *ends <= self.now);
            if ends || self.state.queues.first(key).is_none() {
                self.queues.remove(key);
                self.state.queues.forget(key);
            }
        }
    }

    /// Connects a client.
    pub(crate) fn join(&mut self, name: u8) {
        self.state.clients.insert(client(name), Arc::new(|_| {}));
    }

    /// Disconnects a client. Its owners keep their places in wait queues until they are passed over.
    pub(crate) fn leave(&mut self, name: u8) {
        self.state.clients.remove(&client(name));
    }

    /// Restarts the server without data.
    pub(crate) fn restart(&mut self) {
        self.forget_fence();
        self.state.locks.clear();
        self.state.forget_releases();
        self.state.queues = WaitQueues::default();
        self.queues.clear();
    }

    /// Loses the last fence, for example by eviction. The clock has advanced beyond all fences.
    pub(crate) fn forget_fence(&mut self) {
        let Fences { last, clock, .. } = self.state.fences;
        self.state.fences.clock = clock.max(last) + 1;
        self.state.fences.last = 0;
    }

    /// Executes a request. An owner whose client has left does not wait. Returns the reply and the notifications.
    pub(crate) fn execute(&mut self, body: &Body) -> (Answer, Vec<Notification>) {
        let mut body = body.clone();
        if let Body::Acquire(request, floor) = &mut body {
            request.waits &= (self.state.clients).contains_key(&request.claims[0].owner.client());
            self.state.fences.floor = *floor;
        } else if let Body::Release(_, floor) = &body {
            self.state.fences.floor = *floor;
        }
        let is_member = self.is_member;
        let mut answer = requests::execute(&mut self.state, &body, is_member, RELEASED, self.now);
        self.state.fences.floor = 0;
        let messages = std::mem::take(&mut self.state.messages).into_iter();
        let mut notifications: Vec<Notification> = messages.map(|(_, event)| event).collect();
        // It changes nothing: a client only logs it.
        notifications.retain(|event| !matches!(event, Notification::PermitsDiffer { .. }));
        if let Body::Acquire(request, _) = &body
            && let Answer::Acquired(Acquired::Taken {
                claim, queued, by, ..
            }) = &mut answer
        {
            // As a server replies that reports no changes of locks.
            *by = TakenBy::Unnamed;
            if let Some(QueuePlace { watched, .. }) = queued {
                *watched = false;
                let key = request.claims[*claim].key.clone();
                self.queues.insert(key, self.now + QUEUE_LIFETIME);
            }
        }
        (answer, notifications)
    }

    /// Returns the lock of a key as the server shows it.
    pub(crate) fn inspect(&mut self, key: &Key) -> Option<StoredLock> {
        self.state.inspect(key, self.now)
    }

    /// Returns the wait queue of a lock.
    pub(crate) fn queue(&self, key: &Key) -> impl Iterator<Item = OwnerId> {
        self.state.queues.of(key)
    }
}
