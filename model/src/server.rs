//! The server: the rules of the embedded store, as they ship, with a clock and fences of its own.
//!
//! Its clock only moves with [`Server::pass`], and it sends nothing: a step returns its notifications and grants in
//! [`Effects`]. So it can be explored exhaustively, and compared with real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    sync::{Arc, LazyLock},
    time::Duration,
};

use rlock_proto::embedded;
use uuid::Uuid;

use crate::{
    key, lease, mode,
    owner::OwnerId,
    store::{self, AcquireRequest, Event, ReleaseRequest, RenewalOutcome, State, StoredLock},
    words::{
        Acquire, Acquired, Claim, Effects, Entry, Fence, Fenced, Holder, Key, Millis, Mode,
        Notification, Owner, Release, Released, Renew, Renewed,
    },
};

/// A second in units of fences. A floor that is ahead of the clock by less is ignored.
const SECOND: Fence = 15_625;

/// The lifetime of a wait queue that no owner joins, as on a Redis server.
const QUEUE: Millis = 20_000;

/// The fences of a server. As in the embedded store, all keys have one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fences {
    /// Zero: none.
    last: Fence,
    /// The clock in units of fences. It matters only after a loss of data, so it advances only then.
    clock: Fence,
    /// The floor of the acquire that is executed.
    floor: Fence,
}

impl embedded::Fences for Fences {
    fn next(&mut self) -> Fence {
        let floor = self.floor;
        let now = if floor > self.clock + SECOND {
            floor
        } else {
            self.clock
        };
        self.last = now.max(self.last + 1);
        self.last
    }

    fn last(&self) -> Fence {
        self.last
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

static KEYS: LazyLock<[key::Key; 3]> =
    LazyLock::new(|| ["0", "1", "2"].map(|text| key::Key::parse(text).expect("it is valid")));

/// Returns a key in the words of the product.
pub(crate) fn key(key: Key) -> key::Key {
    KEYS[usize::from(key)].clone()
}

pub(crate) fn key_of(key: &key::Key) -> Key {
    key.as_str().as_bytes()[0] - b'0'
}

/// Returns a mode in the words of the product.
pub(crate) fn mode(mode: Mode) -> mode::Mode {
    match mode {
        Mode::Exclusive => mode::Mode::Exclusive,
        Mode::Shared => mode::Mode::Shared,
        Mode::Permits(most) => mode::Mode::Permits(most.into()),
    }
}

pub(crate) fn mode_of(mode: mode::Mode) -> Mode {
    match mode {
        mode::Mode::Exclusive => Mode::Exclusive,
        mode::Mode::Shared => Mode::Shared,
        mode::Mode::Permits(most) => Mode::Permits(most.try_into().expect("few permits")),
        other => unreachable!("no world has {other}"),
    }
}

fn client(client: u8) -> Uuid {
    Uuid::from_u128(client.into())
}

fn owner(owner: Owner) -> OwnerId {
    OwnerId::new(
        client(owner.client),
        owner.sequence.into(),
        mode(owner.mode),
    )
}

fn owner_of(owner: OwnerId) -> Owner {
    Owner {
        client: owner.client().as_u128().try_into().expect("few clients"),
        sequence: owner.sequence().try_into().expect("few owners"),
        mode: mode_of(owner.mode()),
    }
}

fn holder_of(owner: OwnerId) -> Holder {
    if owner.is_kept() {
        Holder::Kept
    } else {
        Holder::Owner(owner_of(owner))
    }
}

fn claim(claim: Claim) -> store::Claim {
    store::Claim {
        key: key(claim.key),
        owner: owner(claim.owner),
    }
}

fn millis(time: Duration) -> Millis {
    time.as_millis().try_into().expect("short")
}

/// A server: its clock, its locks and the connected clients.
#[derive(Clone)]
pub struct Server {
    now: Millis,
    state: State,
    listening: BTreeSet<u8>,
    /// When each wait queue ends, unless an owner joins it.
    queues: BTreeMap<Key, Millis>,
    /// Whether an owner is notified only once that its lock is wanted.
    notifies_once: bool,
}

/// One key: its lock, and its waiters with the times at which they joined.
type Stored<'a> = (Option<&'a StoredLock>, Vec<(OwnerId, lease::Time)>);

/// What distinguishes a server from another one.
type Parts<'a> = (
    Millis,
    Fences,
    &'a BTreeSet<u8>,
    &'a BTreeMap<Key, Millis>,
    Vec<Stored<'a>>,
);

impl Server {
    /// Creates an empty server with this time.
    #[must_use]
    pub fn new(now: Millis) -> Self {
        Self {
            now,
            state: State::default(),
            listening: BTreeSet::new(),
            queues: BTreeMap::new(),
            notifies_once: false,
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

    fn parts(&self) -> Parts<'_> {
        let stored = |key| {
            let lock = self.state.locks.get(key);
            (lock, self.state.queues.since(key).collect())
        };
        let keys = KEYS.iter().map(stored).collect();
        (
            self.now,
            self.state.fences,
            &self.listening,
            &self.queues,
            keys,
        )
    }

    /// The current time of its clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    fn time(&self) -> lease::Time {
        lease::Time::from(Duration::from_millis(self.now))
    }

    /// Advances the time. What has ended is removed.
    pub fn pass(&mut self, time: Millis) {
        self.now += time;
        let now = self.time();
        for (name, key) in (0..).zip(KEYS.iter()) {
            self.state.inspect(key, now);
            let ends = self.queues.get(&name).is_none_or(|ends| *ends <= self.now);
            if ends || self.state.queues.first(key).is_none() {
                self.queues.remove(&name);
                self.state.queues.forget(key);
            }
        }
    }

    /// Connects a client.
    pub fn join(&mut self, name: u8) {
        self.listening.insert(name);
        self.state.clients.insert(client(name), Arc::new(|_| {}));
    }

    /// Disconnects a client, whose owners leave all wait queues.
    pub fn leave(&mut self, name: u8) {
        self.listening.remove(&name);
        self.state.queues.leave_all(client(name));
        self.state.clients.remove(&client(name));
    }

    /// Restarts the server without data.
    pub fn restart(&mut self) {
        self.lose_fence(0);
        self.state.locks.clear();
        self.state.queues = embedded::WaitQueues::default();
        self.queues.clear();
    }

    /// Continues with an older copy of the fence, which lacks this number of grants. The clock has advanced beyond all
    /// fences.
    fn lose_fence(&mut self, left: Fence) {
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

    /// Executes a request.
    fn change<T>(
        &mut self,
        effects: &mut Effects,
        change: impl FnOnce(&mut State, lease::Time) -> T,
    ) -> T {
        let now = self.time();
        let reply = change(&mut self.state, now);
        for (_, event) in std::mem::take(&mut self.state.messages) {
            let notification = notification(event);
            if let Notification::Granted {
                key, owner, fence, ..
            } = notification
            {
                effects.grants.push(Fenced { key, owner, fence });
            }
            effects.notifications.push(notification);
        }
        reply
    }

    /// Acquires locks, all or none. An owner whose client has left does not wait.
    pub fn acquire(&mut self, ask: &Acquire, effects: &mut Effects) -> Acquired {
        let are_held: Vec<bool> = ask
            .claims
            .iter()
            .map(|claim| claim.owner.mode == Mode::Exclusive && self.holds(claim.key, claim.owner))
            .collect();
        let is_queued = |claim: &Claim| self.queue(claim.key).contains(&claim.owner);
        let repeats = self.notifies_once && ask.claims.iter().any(is_queued);
        let is_there = self.listening.contains(&ask.claims[0].owner.client);
        let request = AcquireRequest {
            claims: ask.claims.iter().copied().map(claim).collect(),
            lease: Duration::from_millis(ask.lease),
            count: ask.count.into(),
            waits: ask.waits && is_there,
        };
        self.state.fences.floor = ask.floor;
        let acquired = self.change(effects, |state, now| state.acquire(&request, now));
        self.state.fences.floor = 0;
        if repeats {
            let is_wanted = |one: &Notification| matches!(one, Notification::Wanted { .. });
            effects.notifications.retain(|one| !is_wanted(one));
        }
        match acquired {
            store::Acquired::Granted { fences, wanted, .. } => {
                let claims = ask.claims.iter().zip(&fences).zip(are_held);
                let new = claims.filter(|(_, is_held)| !is_held);
                effects.grants.extend(new.map(|((claim, fence), _)| Fenced {
                    key: claim.key,
                    owner: claim.owner,
                    fence: *fence,
                }));
                effects.grants.sort_by_key(|grant| grant.fence);
                Acquired::Granted {
                    fences: fences.to_vec(),
                    others_wait: wanted,
                }
            }
            store::Acquired::Taken {
                claim,
                ttl,
                queued,
                fences,
                ..
            } => {
                if queued.is_some() {
                    self.queues.insert(ask.claims[claim].key, self.now + QUEUE);
                }
                Acquired::Taken {
                    claim,
                    ttl: ttl.map_or(Millis::MAX, millis),
                    queued: queued.is_some(),
                    first: queued.is_some_and(|place| place.first),
                    fences: fences.to_vec(),
                }
            }
            store::Acquired::NotOwner => Acquired::NotOwner,
        }
    }

    /// Releases a lock, or lowers a count.
    pub fn release(&mut self, release: &Release, effects: &mut Effects) -> Released {
        if release.count == 0 && self.holds(release.key, release.owner) {
            self.state.fences.last = self.state.fences.last.max(release.fence);
        }
        let request = ReleaseRequest {
            key: key(release.key),
            owner: owner(release.owner),
            fence: release.fence,
            count: release.count.into(),
            min_hold: Duration::from_millis(release.min_hold),
        };
        match self.change(effects, |state, now| state.release(&request, now)) {
            store::Released::Done => Released::Done,
            store::Released::NotHeld => Released::NotHeld,
        }
    }

    /// Extends leases, or leaves them as they are if the lease is 0.
    pub fn renew(&mut self, renew: &Renew, effects: &mut Effects) -> Vec<Renewed> {
        let lease = Duration::from_millis(renew.lease);
        let one = |renewal: &crate::words::Renewal| {
            let of = renewal.claim;
            if renewal.fence > 0 && self.holds(of.key, of.owner) {
                self.state.fences.last = self.state.fences.last.max(renewal.fence - 1);
            }
            let renewals = [store::Renewal {
                claim: claim(of),
                fence: renewal.fence,
            }];
            let renewed = self.change(effects, |state, now| state.renew(&renewals, lease, now));
            let RenewalOutcome::Held { wanted, fence } = renewed.kept[0] else {
                return Renewed {
                    held: false,
                    wanted: false,
                    fence: 0,
                };
            };
            effects.renewed.extend((fence > 0).then_some(Fenced {
                key: of.key,
                owner: of.owner,
                fence,
            }));
            Renewed {
                held: true,
                wanted,
                fence,
            }
        };
        renew.renewals.iter().map(one).collect()
    }

    /// Returns the lock of a key as the server shows it.
    #[must_use]
    pub fn inspect(&self, name: Key) -> Option<Entry> {
        let lock = self.state.locks.get(&key(name))?;
        let mut holders: Vec<Holder> = self.holders(name).map(|(holder, ..)| holder).collect();
        holders.sort_unstable();
        Some(Entry {
            holders,
            count: lock.holders[0].count.try_into().unwrap_or(u8::MAX),
            ttl: millis(lock.expires().since(self.time())),
            fence: lock.fence,
        })
    }

    /// Returns the wait queue of a lock.
    #[must_use]
    pub fn queue(&self, name: Key) -> Vec<Owner> {
        self.state.queues.of(&key(name)).map(owner_of).collect()
    }

    /// Returns the last fence; zero if there is none.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.state.fences.last
    }

    /// Returns the holders of a lock with their modes, and whether the lease of each lasts.
    pub(crate) fn holders(&self, name: Key) -> impl Iterator<Item = (Holder, Mode, bool)> {
        let (lock, now) = (self.state.locks.get(&key(name)), self.time());
        let holders = lock.into_iter().flat_map(|lock| &lock.holders);
        holders.map(move |holder| {
            let of = holder.owner;
            (holder_of(of), mode_of(of.mode()), holder.expires > now)
        })
    }

    pub(crate) fn holds(&self, name: Key, owner: Owner) -> bool {
        self.holders(name)
            .any(|(holder, ..)| holder == Holder::Owner(owner))
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

fn notification(event: Event) -> Notification {
    match event {
        Event::Granted {
            key,
            owner,
            fence,
            ttl,
            wanted,
        } => Notification::Granted {
            key: key_of(&key),
            owner: owner_of(owner),
            fence,
            ttl: millis(ttl),
            others_wait: wanted,
        },
        Event::Wanted { key, owner } => Notification::Wanted {
            key: key_of(&key),
            owner: owner_of(owner),
        },
        Event::Retry { key, owner, after } => Notification::Retry {
            key: key_of(&key),
            owner: owner_of(owner),
            after: millis(after),
        },
        event => unreachable!("no request causes {event:?}"),
    }
}
