//! The server: each Lua script is one step of a pure state machine.
//!
//! Its clock only moves with [`Server::pass`], and it sends nothing: a step returns its
//! notifications and grants in [`Effects`]. So it can be explored exhaustively, and compared with
//! real servers.

mod acquire;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use crate::words::{
    Acquire, Acquired, Effects, Entry, Fence, Fenced, Holder, Key, Millis, Mode, Notification,
    Owner, Release, Released, Renew, Renewal, Renewed,
};

/// The limit of fences. Tokens stay below 2^53, where doubles are exact.
pub const TOO_LARGE: Fence = 1 << 46;

/// A second in units of fences. A floor that is ahead of the clock by less is ignored.
const SECOND: Fence = 15_625;

/// When a waiter asks again that keeps others out. It asks sooner by itself.
const PROBE: Millis = 20_000;

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
    /// A fence ignores the floor of its request.
    FloorIgnored,
    /// The grace period of a handed-off lock does not end.
    GraceWithoutEnd,
    /// A lock is handed off without a notification. Not a bug by itself: waiters retry.
    HandOffWithoutNotification,
    /// A lock is handed off to a waiter whose client is not connected.
    HandOffToAbsent,
    /// The server notifies an owner only once that its lock is wanted. Not a bug by itself:
    /// renewals report it, too.
    WantedOnce,
    /// An owner that a lock admits gets it before earlier waiters that the lock does not admit.
    ReadersFirst,
    /// A lock is handed off to the first exclusive waiter, even if others precede it.
    WritersFirst,
    /// A holder whose lease has ended counts as long as another holder's lease lasts.
    ExpiredCounts,
    /// A renewal revives a lease that has ended beside that of another holder.
    ExpiredRevived,
    /// The release of a permit that is not held frees another permit.
    PermitFreedTwice,
    /// A downgrade lets no waiter in.
    DowngradeInSilence,
}

/// A server: its clock, its locks and the connected clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    now: Millis,
    locks: BTreeMap<Key, Lock>,
    listening: BTreeSet<u8>,
    /// The clock in units of fences. It matters only after a loss of data, so it advances only then.
    fence_clock: Fence,
    /// The floor of the acquire that is executed.
    floor: Fence,
    constants: Constants,
    bug: Option<ServerBug>,
}

/// The data of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    /// The holders, all in one mode.
    held: Vec<Held>,
    /// The last fence. Zero: none.
    fence: Fence,
    queue: Vec<(Owner, Millis)>,
    queue_until: Millis,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    by: Holder,
    mode: Mode,
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
            floor: 0,
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
        let counts_expired = self.has(ServerBug::ExpiredCounts);
        for lock in self.locks.values_mut() {
            lock.expire(self.now, counts_expired);
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
        self.floor = ask.floor;
        let acquired = acquire::acquire(self, ask, effects);
        self.floor = 0;
        acquired
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
        self.downgrade(claim.key, claim.owner);
        let lock = self.lock(claim.key);
        if bug == Some(ServerBug::RenewalCreates) && lock.held.is_empty() {
            lock.grant(claim.owner, 1, until);
        }
        let mut modes = lock.held.iter().map(|held| held.mode);
        if bug == Some(ServerBug::ExpiredRevived)
            && modes.any(|mode| mode.tolerates(claim.owner.mode))
        {
            lock.grant(claim.owner, 1, until);
        }
        let any = bug == Some(ServerBug::RenewalOfOthers);
        let wanted = !lock.queue.is_empty();
        let mut holders = lock.held.iter_mut();
        let held = holders.find(|held| any || held.by == Holder::Owner(claim.owner));
        let (held, fence) = match held {
            Some(held) => {
                if lease > 0 {
                    held.until = until;
                }
                (true, self.raise_fence(claim.key, fence))
            }
            None => (false, None),
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

    /// Returns the holders of a lock; see `inspect.lua`.
    #[must_use]
    pub fn inspect(&self, key: Key) -> Option<Entry> {
        let lock = self.locks.get(&key)?;
        let until = lock.held.iter().map(|held| held.until).max()?;
        let mut holders: Vec<Holder> = lock.held.iter().map(|held| held.by).collect();
        holders.sort_unstable();
        Some(Entry {
            holders,
            count: lock.held[0].count,
            ttl: until - self.now,
            fence: self.fence(key),
        })
    }

    /// Returns whether an owner may hold a lock together with the other holders.
    fn admits(&self, key: Key, owner: Owner) -> bool {
        let held = self.locks.get(&key).map_or(&[][..], |lock| &lock.held);
        match (owner.mode, held.first().map(|held| held.mode)) {
            (_, None) | (Mode::Shared, Some(Mode::Shared)) => true,
            (Mode::Permits(most), Some(Mode::Permits(_))) => held.len() < usize::from(most),
            _ => false,
        }
    }

    /// Returns how long a lock is not free for an owner: a permit, until the first lease ends.
    fn rest(&self, key: Key, owner: Owner) -> Millis {
        let held = self.locks.get(&key).map_or(&[][..], |lock| &lock.held);
        let ends = held.iter().map(|held| held.until);
        let is_permit = |mode| matches!(mode, Mode::Permits(_));
        let are_permits = is_permit(owner.mode) && held.iter().all(|held| is_permit(held.mode));
        let end = if are_permits { ends.min() } else { ends.max() };
        end.map_or(0, |end| end - self.now)
    }

    /// Downgrades an exclusive lock, if the owner had it.
    fn downgrade(&mut self, key: Key, owner: Owner) {
        let former = Holder::Owner(Owner {
            mode: Mode::Exclusive,
            ..owner
        });
        let mut holders = self.lock(key).held.iter_mut();
        if owner.mode == Mode::Shared
            && let Some(held) = holders.find(|held| held.by == former)
        {
            (held.by, held.mode, held.count) = (Holder::Owner(owner), owner.mode, 1);
        }
    }

    /// Takes a lock from an owner.
    fn remove(&mut self, key: Key, owner: Owner) {
        let lock = self.lock(key);
        lock.held.retain(|held| held.by != Holder::Owner(owner));
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

    /// Returns the holders of a lock with their modes, and whether the lease of each lasts.
    pub(crate) fn holders(&self, key: Key) -> impl Iterator<Item = (Holder, Mode, bool)> {
        let held = self.locks.get(&key).map_or(&[][..], |lock| &lock.held);
        let now = self.now;
        held.iter()
            .map(move |held| (held.by, held.mode, held.until > now))
    }

    pub(crate) fn holds(&self, key: Key, owner: Owner) -> bool {
        let held = self.locks.get(&key).map_or(&[][..], |lock| &lock.held);
        held.iter().any(|held| held.by == Holder::Owner(owner))
    }

    /// Sets the next fence, like `next_fence` in `library.lua`.
    fn next_fence(&mut self, key: Key) -> Fence {
        let (after_last, mut clock) = (self.fence(key) + 1, self.fence_clock);
        if self.floor > clock + SECOND && !self.has(ServerBug::FloorIgnored) {
            clock = self.floor;
        }
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

    fn dequeue(&mut self, key: Key, owner: Owner) {
        let queue = &mut self.lock(key).queue;
        queue.retain(|(queued, _)| *queued != owner);
    }

    /// Returns the first waiter, and since when it waits.
    fn first(&self, key: Key) -> Option<(Owner, Millis)> {
        let queue = &self.locks.get(&key)?.queue;
        let mut writers = queue
            .iter()
            .filter(|(owner, _)| owner.mode == Mode::Exclusive);
        let writer = writers.next().filter(|_| self.has(ServerBug::WritersFirst));
        writer.or(queue.first()).copied()
    }

    /// Hands a lock off to its first waiters, as far as it admits them and they precede the owner that asks, like
    /// `hand_off` in `library.lua`. Returns whether that owner has to wait. `joins`: another owner joins the wait queue in
    /// the same step.
    fn hand_off(
        &mut self,
        key: Key,
        asks: Option<Owner>,
        joins: bool,
        effects: &mut Effects,
    ) -> bool {
        let (now, silent, grace) = (self.now, self.constants.silent, self.constants.grace);
        let mut longest = None;
        let blocked = loop {
            let (mut batch, mut blocked) = (Vec::new(), false);
            while let Some((owner, since)) = self.first(key) {
                blocked = !self.admits(key, owner);
                if blocked && self.is_gone(key, owner, asks, effects) {
                    self.dequeue(key, owner);
                    blocked = false;
                    continue;
                }
                if blocked {
                    break;
                }
                self.dequeue(key, owner);
                if Some(owner) == asks {
                    break;
                }
                self.lock(key).grant(owner, 1, now + grace);
                batch.push((owner, since));
            }
            let others_wait = joins || !self.queue(key).is_empty();
            let mut is_anyone_absent = false;
            for (owner, since) in batch {
                if self.may_get(owner) {
                    self.handed_off(key, owner, others_wait, effects);
                    longest = longest.max(Some(now - since));
                } else {
                    // Its grant had a fence, too.
                    self.next_fence(key);
                    self.remove(key, owner);
                    is_anyone_absent = true;
                }
            }
            if !is_anyone_absent {
                break blocked;
            }
        };
        if longest.is_some_and(|longest| longest > silent) {
            self.notify_from(key, 0, grace, effects);
        }
        let is_passed_over = asks.is_some() && self.has(ServerBug::ReadersFirst);
        blocked && !is_passed_over || asks.is_some_and(|asks| !self.admits(key, asks))
    }

    /// Returns whether the first waiter is gone, and keeps the owner that asks from a lock that admits it.
    fn is_gone(&self, key: Key, first: Owner, asks: Option<Owner>, effects: &mut Effects) -> bool {
        let is_checked = asks.is_some_and(|asks| asks != first && self.admits(key, asks));
        if is_checked {
            let probe = Notification::Retry {
                key,
                owner: first,
                after: PROBE,
            };
            self.notify(probe, effects);
        }
        is_checked && !self.listening.contains(&first.client)
    }

    fn may_get(&self, owner: Owner) -> bool {
        self.listening.contains(&owner.client) || self.has(ServerBug::HandOffToAbsent)
    }

    /// Notifies an owner of its grant.
    fn handed_off(&mut self, key: Key, owner: Owner, others_wait: bool, effects: &mut Effects) {
        let fence = if self.has(ServerBug::FenceReused) {
            self.fence(key)
        } else {
            self.next_fence(key)
        };
        let (ttl, now) = (self.constants.grace, self.now);
        if self.has(ServerBug::GraceWithoutEnd) {
            self.lock(key).grant(owner, 1, now + 1000 * ttl);
        }
        effects.grants.push(Fenced { key, owner, fence });
        if !self.has(ServerBug::HandOffWithoutNotification) {
            let granted = Notification::Granted {
                key,
                owner,
                fence,
                ttl,
                others_wait,
            };
            self.notify(granted, effects);
        }
    }

    /// Notifies the owners of a lock that another client waits, or tries once.
    fn notify_wanted(&self, key: Key, waits: bool, effects: &mut Effects) {
        let held = self.locks.get(&key).map_or(&[][..], |lock| &lock.held);
        for held in held {
            // Permits are never retained.
            if let Holder::Owner(owner) = held.by
                && !matches!(held.mode, Mode::Permits(_))
            {
                let notification = if held.mode == Mode::Shared && !waits {
                    Notification::Retry {
                        key,
                        owner,
                        after: 0,
                    }
                } else {
                    Notification::Wanted { key, owner }
                };
                self.notify(notification, effects);
            }
        }
    }

    /// Tells the first waiter whose client is connected when to retry, and removes those before it. It may be dead by then,
    /// so the second and the last waiter retry after a further grace period.
    fn ask_first(&mut self, key: Key, after: Millis, effects: &mut Effects) {
        let Constants { grace, silent, .. } = self.constants;
        while let Some((owner, since)) = self.first(key) {
            if !self.listening.contains(&owner.client) {
                self.dequeue(key, owner);
                continue;
            }
            self.notify(Notification::Retry { key, owner, after }, effects);
            if self.now - since + after > silent {
                self.notify_from(key, 1, after + grace, effects);
            }
            return;
        }
    }

    /// Tells the waiter at this place, and the last one behind it, when to retry.
    fn notify_from(&self, key: Key, place: usize, after: Millis, effects: &mut Effects) {
        let queue = self.queue(key);
        let waiters = queue.get(place..).unwrap_or_default();
        let last = waiters.iter().skip(1).next_back();
        for owner in waiters.first().into_iter().chain(last).copied() {
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
    /// Grants the lock, or grants it again. A lease only grows.
    fn grant(&mut self, owner: Owner, count: u8, until: Millis) {
        let by = Holder::Owner(owner);
        match self.held.iter_mut().find(|held| held.by == by) {
            Some(held) => {
                held.count = count;
                held.until = held.until.max(until);
            }
            None => self.held.push(Held {
                by,
                mode: owner.mode,
                count,
                until,
            }),
        }
    }

    fn expire(&mut self, now: Millis, counts_expired: bool) {
        let is_live = |held: &Held| held.until > now;
        if !counts_expired || !self.held.iter().any(is_live) {
            self.held.retain(is_live);
        }
        if self.queue.is_empty() || self.queue_until <= now {
            self.queue.clear();
            self.queue_until = 0;
        }
    }
}
