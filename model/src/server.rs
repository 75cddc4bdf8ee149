//! A server of the model, whose clock and fences move only when the model moves them.
//!
//! It sends nothing: a step returns its notifications and grants in [`Effects`]. So it can be explored exhaustively, and compared
//! with real servers.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::{Arc, LazyLock},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    embedded::{self, LeaseHolder, LockState, State, WaitQueues},
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    requests::{self, Answer, Body},
    store::{
        Acquired, Claim, Notification, QUEUE_LIFETIME, QueuePlace, RenewalOutcome, StoredLock,
        TakenBy,
    },
};

/// How long a member of a quorum remembers its last release.
const RELEASED: Duration = Duration::from_secs(61);

/// The fences of a server. As in the embedded store, all keys have one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

static KEYS: LazyLock<[Key; 3]> =
    LazyLock::new(|| ["0", "1", "2"].map(|text| Key::parse(text).expect("it is valid")));

/// Returns the key with this number.
#[must_use]
pub fn key(number: u8) -> Key {
    KEYS[usize::from(number)].clone()
}

/// Returns the number of a key.
#[must_use]
pub fn number(key: &Key) -> u8 {
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

/// Returns the number of an owner's client.
pub(crate) fn client_of(owner: OwnerId) -> u8 {
    owner.client().as_u128().try_into().expect("few clients")
}

/// Returns the owner that a notification is for.
pub(crate) fn owner_of(event: &Notification) -> OwnerId {
    match event {
        Notification::Granted { owner, .. }
        | Notification::Wanted { owner, .. }
        | Notification::Retry { owner, .. } => *owner,
        event => unreachable!("no request causes {event:?}"),
    }
}

/// Returns whether holders in both modes may have a lock at once.
pub(crate) fn tolerate(one: LockMode, other: LockMode) -> bool {
    match (one, other) {
        (LockMode::Shared, LockMode::Shared) => true,
        (LockMode::Permits(one), LockMode::Permits(more)) => one.max(more) > 1,
        _ => false,
    }
}

/// A fence that a server set for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fenced {
    /// The number of the key.
    pub(crate) key: u8,
    pub(crate) owner: OwnerId,
    pub(crate) fence: u64,
}

impl Fenced {
    fn of(Claim { key, owner }: &Claim, fence: u64) -> Self {
        Self {
            key: number(key),
            owner: *owner,
            fence,
        }
    }
}

/// The effects of one step of a server, besides its reply.
#[derive(Debug, Default)]
pub struct Effects {
    /// The notifications that it sends.
    pub notifications: Vec<Notification>,
    /// The grants, in order.
    pub(crate) grants: Vec<Fenced>,
    /// The new fences of renewals.
    pub(crate) renewed: Vec<Fenced>,
}

/// A server: its clock, its locks and the connected clients.
#[derive(Clone)]
pub struct Server {
    now: Time,
    state: State<Fences>,
    /// When each wait queue ends, unless an owner joins it.
    queues: BTreeMap<Key, Time>,
    /// Whether an owner is notified only once that its lock is wanted.
    notifies_once: bool,
    /// Whether it is a member of a quorum.
    is_member: bool,
}

/// One key: its lock, and its waiters with the times at which they joined.
type Stored<'a> = (Option<&'a LockState>, Vec<(OwnerId, Time)>);

/// What distinguishes a server from another one.
type Parts<'a> = (
    Time,
    Fences,
    Vec<&'a Uuid>,
    &'a BTreeMap<Key, Time>,
    Vec<Stored<'a>>,
);

impl Server {
    /// Creates an empty server with this time.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            now,
            state: State::default(),
            queues: BTreeMap::new(),
            notifies_once: false,
            is_member: false,
        }
    }

    /// Makes the server notify an owner only once that its lock is wanted. Renewals report it, too.
    #[must_use]
    pub fn notifying_once(self, notifies_once: bool) -> Self {
        Self {
            notifies_once,
            ..self
        }
    }

    /// Makes the server a member of a quorum.
    #[must_use]
    pub fn of_quorum(self, is_member: bool) -> Self {
        Self { is_member, ..self }
    }

    fn parts(&self) -> Parts<'_> {
        let stored = |key| {
            let lock = self.state.locks.get(key);
            (lock, self.state.queues.since(key).collect())
        };
        let mut clients: Vec<&Uuid> = self.state.clients.keys().collect();
        clients.sort_unstable();
        let keys = KEYS.iter().map(stored).collect();
        (self.now, self.state.fences, clients, &self.queues, keys)
    }

    /// The current time of its clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Advances the time. What has ended is removed.
    pub fn pass(&mut self, time: Duration) {
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
    pub fn join(&mut self, name: u8) {
        self.state.clients.insert(client(name), Arc::new(|_| {}));
    }

    /// Disconnects a client. Its owners keep their places in wait queues until they are passed over.
    pub fn leave(&mut self, name: u8) {
        self.state.clients.remove(&client(name));
    }

    /// Returns whether the client of an owner is connected.
    #[must_use]
    pub fn listens(&self, owner: OwnerId) -> bool {
        self.state.clients.contains_key(&owner.client())
    }

    /// Restarts the server without data.
    pub fn restart(&mut self) {
        self.lose_fence(0);
        self.state.locks.clear();
        self.state.forget_releases();
        self.state.queues = WaitQueues::default();
        self.queues.clear();
    }

    /// Continues with an older copy of the fence, which lacks this number of grants. The clock has advanced beyond all
    /// fences.
    fn lose_fence(&mut self, left: u64) {
        let Fences { last, clock, .. } = self.state.fences;
        self.state.fences.clock = clock.max(last) + 1;
        self.state.fences.last = left;
    }

    /// Loses the last fence, for example by eviction.
    pub fn forget_fence(&mut self) {
        self.lose_fence(0);
    }

    /// Continues with an older copy of the data, which lacks the last grant of a free lock.
    pub fn miss_grant(&mut self) {
        self.lose_fence(self.state.fences.last.saturating_sub(1));
    }

    /// Executes a request. An owner whose client has left does not wait.
    pub fn execute(&mut self, body: &Body) -> (Answer, Effects) {
        let (mut body, mut effects) = (body.clone(), Effects::default());
        let (mut are_held, mut repeats) = (Vec::new(), false);
        if let Body::Acquire(request, floor) = &mut body {
            let is_held = |Claim { key, owner }: &Claim| {
                owner.mode() == LockMode::Exclusive && self.holds(key, *owner)
            };
            are_held = request.claims.iter().map(is_held).collect();
            let mut claims = request.claims.iter();
            repeats = self.notifies_once
                && claims.any(|claim| self.queue(&claim.key).any(|owner| owner == claim.owner));
            request.waits &= (self.state.clients).contains_key(&request.claims[0].owner.client());
            self.state.fences.floor = *floor;
        } else if let Body::Release(_, floor) = &body {
            self.state.fences.floor = *floor;
        }
        let remembers = self.is_member.then_some(RELEASED);
        let mut answer = requests::execute(&mut self.state, &body, remembers, self.now);
        self.state.fences.floor = 0;
        for (_, event) in std::mem::take(&mut self.state.messages) {
            match &event {
                Notification::Granted {
                    key, owner, fence, ..
                } => {
                    let (key, owner) = (key.clone(), *owner);
                    effects
                        .grants
                        .push(Fenced::of(&Claim { key, owner }, *fence));
                }
                Notification::Wanted { .. } if repeats => continue,
                // It changes nothing: a client only logs it.
                Notification::PermitsDiffer { .. } => continue,
                _ => {}
            }
            effects.notifications.push(event);
        }
        match (&body, &mut answer) {
            (Body::Acquire(request, _), Answer::Acquired(Acquired::Granted { fences, .. })) => {
                let claims = request.claims.iter().zip(fences).zip(are_held);
                let new = claims.filter(|(_, is_held)| !is_held);
                (effects.grants).extend(new.map(|((claim, fence), _)| Fenced::of(claim, *fence)));
                effects.grants.sort_by_key(|grant| grant.fence);
            }
            (
                Body::Acquire(request, _),
                Answer::Acquired(Acquired::Taken {
                    claim, queued, by, ..
                }),
            ) => {
                // As a server replies that reports no changes of locks.
                *by = TakenBy::Unnamed;
                if let Some(QueuePlace { watched, .. }) = queued {
                    *watched = false;
                    let key = request.claims[*claim].key.clone();
                    self.queues.insert(key, self.now + QUEUE_LIFETIME);
                }
            }
            (Body::Renew(renewal, _), Answer::Renewed(renewed)) => {
                if let RenewalOutcome::Held {
                    fence: fence @ 1.., ..
                } = renewed.kept[0]
                {
                    effects.renewed.push(Fenced::of(&renewal.claim, fence));
                }
            }
            _ => {}
        }
        (answer, effects)
    }

    /// Returns the lock of a key as the server shows it.
    pub fn inspect(&mut self, key: &Key) -> Option<StoredLock> {
        self.state.inspect(key, self.now)
    }

    /// Returns the wait queue of a lock.
    pub fn queue(&self, key: &Key) -> impl Iterator<Item = OwnerId> {
        self.state.queues.of(key)
    }

    /// Returns the last fence; zero if there is none.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.state.fences.last
    }

    /// Returns the holders of a lock.
    pub fn holders(&self, key: &Key) -> impl Iterator<Item = &LeaseHolder> {
        let lock = self.state.locks.get(key);
        lock.into_iter().flat_map(|lock| &lock.holders)
    }

    pub(crate) fn holds(&self, key: &Key, owner: OwnerId) -> bool {
        self.holders(key).any(|holder| holder.owner == owner)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts().fmt(f)
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Server {}

impl Hash for Server {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}
