//! The server: each Lua script is one step of a pure state machine.
//!
//! Its clock only moves with [`Server::pass`], and it sends nothing: a step returns its
//! notifications and grants in [`Effects`]. So it can be explored exhaustively, and compared with
//! real servers.

mod acquire;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use crate::words::{
    Acquire, Acquired, Effects, Entry, Fence, Fenced, Holder, Key, Millis, Notification, Owner,
    Release, Released, Renew, Renewal, Renewed,
};

/// The limit of fences. Tokens stay below 2^53, where doubles are exact.
pub const TOO_LARGE: Fence = 1 << 46;

/// The constants of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    /// The grace period of a handed-off lock.
    pub grace: Millis,
    /// A waiter that was silent for longer may be dead.
    pub silent: Millis,
    /// The lifetime of a wait queue that no owner joins.
    pub queue: Millis,
}

impl Constants {
    /// The constants of the real scripts.
    pub const REAL: Self = Self {
        grace: 1_000,
        silent: 50,
        queue: 20_000,
    };
}

/// A bug of the server. The checker finds each of them, except those that are marked as no bugs by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerBug {
    /// A release deletes the lock of another owner.
    ReleaseOfOthers,
    /// A renewal acquires a free lock.
    RenewalCreates,
    /// A renewal extends the lock of another owner.
    RenewalOfOthers,
    /// An acquire adds to the count instead of setting it.
    CountAdded,
    /// A release resets the fence.
    FenceReset,
    /// A hand-off keeps the last fence.
    FenceReused,
    /// A fence ignores the last one.
    FenceIgnoresLast,
    /// A fence ignores the clock, and starts at one after a loss of data.
    FenceIgnoresClock,
    /// The next grant has the fence of a renewal again.
    FenceForgotten,
    /// The grace period of a handed-off lock does not end.
    GraceWithoutEnd,
    /// A lock is handed off without a notification. Not a bug by itself: waiters retry.
    HandOffWithoutNotification,
    /// A lock is handed off to a waiter whose client is not connected.
    HandOffToAbsent,
    /// The server notifies an owner only once that its lock is wanted. Not a bug by itself:
    /// renewals report it, too.
    WantedOnce,
}

/// A server: its clock, its locks and the connected clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    now: Millis,
    locks: BTreeMap<Key, Lock>,
    listening: BTreeSet<u8>,
    /// The clock in units of fences. It matters only after a loss of data, so it advances only then.
    fence_clock: Fence,
    constants: Constants,
    bug: Option<ServerBug>,
}

/// The data of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    held: Option<Held>,
    /// The last fence. Zero: none.
    fence: Fence,
    queue: Vec<(Owner, Millis)>,
    queue_until: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    by: Holder,
    count: u8,
    until: Millis,
}

impl Server {
    /// Creates an empty server with this time.
    #[must_use]
    pub fn new(now: Millis, constants: Constants) -> Self {
        Self {
            now,
            locks: BTreeMap::new(),
            listening: BTreeSet::new(),
            fence_clock: 1,
            constants,
            bug: None,
        }
    }

    /// Adds a bug.
    #[must_use]
    pub fn with_bug(self, bug: Option<ServerBug>) -> Self {
        Self { bug, ..self }
    }

    fn has(&self, bug: ServerBug) -> bool {
        self.bug == Some(bug)
    }

    /// The current time of its clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Advances the time.
    pub fn pass(&mut self, time: Millis) {
        self.now += time;
        for lock in self.locks.values_mut() {
            lock.expire(self.now);
        }
    }

    /// Connects a client.
    pub fn join(&mut self, client: u8) {
        self.listening.insert(client);
    }

    /// Disconnects a client. Its owners stay in the wait queues until their turn.
    pub fn leave(&mut self, client: u8) {
        self.listening.remove(&client);
    }

    /// Like [`leave`](Self::leave), and removes its owners from the wait queues.
    pub fn leave_all_queues(&mut self, client: u8) {
        self.leave(client);
        for lock in self.locks.values_mut() {
            lock.queue.retain(|(owner, _)| owner.client != client);
        }
    }

    /// Restarts the server without data.
    pub fn restart(&mut self) {
        self.advance_fence_clock();
        self.locks.clear();
    }

    /// Loses the fence of a key, for example by eviction.
    pub fn lose_fence(&mut self, key: Key) {
        self.replace_fence(key, 0);
    }

    /// Continues with an older copy of the data, which lacks the last grant of a free lock.
    pub fn miss_grant(&mut self, key: Key) {
        self.replace_fence(key, self.fence(key).saturating_sub(1));
    }

    /// Overwrites the fence of a key. The time has advanced since the last grant.
    pub fn replace_fence(&mut self, key: Key, fence: Fence) {
        self.advance_fence_clock();
        self.lock(key).fence = fence;
    }

    /// Advances the clock beyond all fences.
    fn advance_fence_clock(&mut self) {
        let last = self.locks.keys().map(|key| self.fence(*key)).max();
        self.fence_clock = self.fence_clock.max(last.unwrap_or(0)) + 1;
    }

    /// Acquires locks, all or none; see `acquire.lua`.
    pub fn acquire(&mut self, ask: &Acquire, effects: &mut Effects) -> Acquired {
        acquire::acquire(self, ask, effects)
    }

    /// Releases a lock, or lowers a count; see `release.lua`.
    pub fn release(&mut self, release: &Release, effects: &mut Effects) -> Released {
        release::release(self, release, effects)
    }

    /// Extends leases, or leaves them as they are if the lease is 0; see `renew.lua`.
    pub fn renew(&mut self, renew: &Renew, effects: &mut Effects) -> Vec<Renewed> {
        let renewals = renew.renewals.iter();
        renewals
            .map(|renewal| self.renew_one(*renewal, renew.lease, effects))
            .collect()
    }

    fn renew_one(
        &mut self,
        Renewal { claim, fence }: Renewal,
        lease: Millis,
        effects: &mut Effects,
    ) -> Renewed {
        let (until, bug) = (self.now + lease, self.bug);
        let lock = self.lock(claim.key);
        if bug == Some(ServerBug::RenewalCreates) && lock.held.is_none() {
            lock.grant(claim.owner, 1, until);
        }
        let any = bug == Some(ServerBug::RenewalOfOthers);
        let wanted = !lock.queue.is_empty();
        let (held, fence) = match &mut lock.held {
            Some(held) if any || held.by == Holder::Owner(claim.owner) => {
                if lease > 0 {
                    held.until = until;
                }
                (true, self.raise_fence(claim.key, fence))
            }
            _ => (false, None),
        };
        effects.renewed.extend(fence.map(|fence| Fenced {
            key: claim.key,
            owner: claim.owner,
            fence,
        }));
        Renewed {
            held,
            wanted: held && wanted,
            fence: fence.unwrap_or(0),
        }
    }

    /// Returns the holder of a lock; see `inspect.lua`.
    #[must_use]
    pub fn inspect(&self, key: Key) -> Option<Entry> {
        let lock = self.locks.get(&key)?;
        lock.held.as_ref().map(|held| Entry {
            holder: held.by,
            count: held.count,
            ttl: held.until - self.now,
            fence: self.fence(key),
        })
    }

    /// Returns the wait queue of a lock.
    #[must_use]
    pub fn queue(&self, key: Key) -> Vec<Owner> {
        let queue = self.locks.get(&key).map(|lock| lock.queue.as_slice());
        queue
            .unwrap_or_default()
            .iter()
            .map(|(owner, _)| *owner)
            .collect()
    }

    /// Returns the last fence of a key; zero if there is none, or an invalid one.
    #[must_use]
    pub fn fence(&self, key: Key) -> Fence {
        let fence = self.locks.get(&key).map_or(0, |lock| lock.fence);
        if fence < TOO_LARGE { fence } else { 0 }
    }

    fn lock(&mut self, key: Key) -> &mut Lock {
        self.locks.entry(key).or_default()
    }

    pub(crate) fn holds(&self, key: Key, owner: Owner) -> bool {
        let held = self.locks.get(&key).and_then(|lock| lock.held.as_ref());
        held.is_some_and(|held| held.by == Holder::Owner(owner))
    }

    /// Sets the next fence, like `next_fence` in `library.lua`.
    fn next_fence(&mut self, key: Key) -> Fence {
        let (after_last, clock) = (self.fence(key) + 1, self.fence_clock);
        let fence = match self.bug {
            Some(ServerBug::FenceIgnoresLast) => clock,
            Some(ServerBug::FenceIgnoresClock) => after_last,
            _ => after_last.max(clock),
        };
        self.lock(key).fence = fence;
        fence
    }

    /// Sets a fence of at least `least`, unless the last one is that large or `least` is zero. Returns the new fence.
    fn raise_fence(&mut self, key: Key, least: Fence) -> Option<Fence> {
        let current = self.fence(key);
        let is_asked_for = current < least;
        let fence = is_asked_for.then_some(least.max(self.fence_clock).max(current + 1))?;
        if !self.has(ServerBug::FenceForgotten) {
            self.lock(key).fence = fence;
        }
        Some(fence)
    }

    fn dequeue(&mut self, key: Key) -> Option<(Owner, Millis)> {
        let queue = &mut self.lock(key).queue;
        (!queue.is_empty()).then(|| queue.remove(0))
    }

    /// Hands a free lock off to its first waiter, like `hand_off` in `library.lua`. `joins`: another owner joins the
    /// wait queue in the same step.
    fn hand_off(
        &mut self,
        key: Key,
        requester: Option<Owner>,
        joins: bool,
        effects: &mut Effects,
    ) -> bool {
        while let Some((owner, since)) = self.dequeue(key)
            && Some(owner) != requester
        {
            if self.listening.contains(&owner.client) || self.has(ServerBug::HandOffToAbsent) {
                let fence = if self.has(ServerBug::FenceReused) {
                    self.fence(key)
                } else {
                    self.next_fence(key)
                };
                let Constants { grace, silent, .. } = self.constants;
                let now = self.now;
                let ttl = if self.has(ServerBug::GraceWithoutEnd) {
                    1000 * grace
                } else {
                    grace
                };
                self.lock(key).grant(owner, 1, now + ttl);
                effects.grants.push(Fenced { key, owner, fence });
                if !self.has(ServerBug::HandOffWithoutNotification) {
                    self.notify(
                        Notification::Granted {
                            key,
                            owner,
                            fence,
                            ttl: grace,
                            others_wait: joins || !self.queue(key).is_empty(),
                        },
                        effects,
                    );
                }
                if now - since > silent {
                    self.notify_first(key, grace, effects);
                    self.notify_last(key, grace, effects);
                }
                return true;
            }
        }
        false
    }

    /// Notifies the owner of a lock that another client waits.
    fn notify_wanted(&self, key: Key, effects: &mut Effects) {
        let held = self.locks.get(&key).and_then(|lock| lock.held.as_ref());
        if let Some(Held {
            by: Holder::Owner(owner),
            ..
        }) = held
        {
            let owner = *owner;
            self.notify(Notification::Wanted { key, owner }, effects);
        }
    }

    /// Tells the first waiter when to retry.
    fn notify_first(&self, key: Key, after: Millis, effects: &mut Effects) {
        if let Some(owner) = self.queue(key).first().copied() {
            self.notify(Notification::Retry { key, owner, after }, effects);
        }
    }

    /// Tells the last waiter when to retry, if it is not the first.
    fn notify_last(&self, key: Key, after: Millis, effects: &mut Effects) {
        if let [_, .., owner] = self.queue(key)[..] {
            self.notify(Notification::Retry { key, owner, after }, effects);
        }
    }

    fn notify(&self, notification: Notification, effects: &mut Effects) {
        if self.listening.contains(&notification.owner().client) {
            effects.notifications.push(notification);
        }
    }

    /// Adds an owner to the wait queue, unless it is queued, and renews the queue.
    fn enqueue(&mut self, key: Key, owner: Owner) {
        let (now, until) = (self.now, self.now.saturating_add(self.constants.queue));
        let lock = self.lock(key);
        if lock.queue.iter().all(|(queued, _)| *queued != owner) {
            lock.queue.push((owner, now));
        }
        lock.queue_until = until;
    }
}

impl Lock {
    fn grant(&mut self, owner: Owner, count: u8, until: Millis) {
        self.held = Some(Held {
            by: Holder::Owner(owner),
            count,
            until,
        });
    }

    fn expire(&mut self, now: Millis) {
        if self.held.as_ref().is_some_and(|held| held.until <= now) {
            self.held = None;
        }
        if self.queue.is_empty() || self.queue_until <= now {
            self.queue.clear();
            self.queue_until = 0;
        }
    }
}
