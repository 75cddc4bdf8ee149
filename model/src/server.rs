//! The server: what the Lua scripts do, each of them one step, as a pure state machine.
//!
//! Its clock moves with [`Server::pass`] only, and it sends nothing: a step returns its notifications and
//! grants in [`Effects`]. So it can be explored exhaustively, and compared
//! with the real thing step by step.

mod acquire;
mod extend;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use crate::words::{
    Acquire, Acquired, BLOCK, Block, Effects, Entry, Extend, Extended, Holder, Key, Millis,
    Notification, Owner, Release, Released, Renewal, Renewed, Token,
};

/// How many tokens the clock is worth in a millisecond: where the last token is gone, counting begins
/// again at the time in microseconds.
const TOKENS_A_MILLISECOND: Token = 1000;

/// The limit of fencing tokens: the scripts count in doubles, which are exact below it.
pub const TOO_LARGE: Token = 1 << 53;

/// The constants of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    /// How long a handed-off lock is reserved for an owner that has not confirmed it.
    pub grace: Millis,
    /// A waiter that was silent for longer may be dead.
    pub silent: Millis,
    /// How long a wait queue stays that no owner joins.
    pub queue: Millis,
    /// How many tokens a grant reserves.
    pub block: Token,
}

impl Constants {
    /// As in the scripts.
    pub const REAL: Self = Self {
        grace: 1_000,
        silent: 50,
        queue: 20_000,
        block: BLOCK,
    };
}

/// Mistakes that a server could make. Each is found by the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerBug {
    /// A release deletes the lock of any owner.
    ReleaseOfOthers,
    /// A renewal takes a lock that is free.
    RenewalCreates,
    /// A renewal extends the lock of any owner.
    RenewalOfOthers,
    /// An acquire adds to the count instead of setting it.
    CountAdded,
    /// Where the last token is gone, counting begins again at one.
    TokensFromOne,
    /// Where the last token is gone, a release begins to count, and the next grant goes on from there.
    TokensFromReleases,
    /// A handed-off lock keeps its tokens.
    TokenReused,
    /// The next grant reserves the tokens of an extension again.
    ExtensionForgotten,
    /// A handed-off lock is reserved without an end.
    GraceWithoutEnd,
    /// A lock is handed off without a notification.
    HandOffWithoutNotification,
    /// A lock is handed off to a waiter whose client does not listen.
    HandOffToAbsent,
    /// The server notifies an owner only once that its lock is wanted. No bug by itself: renewals tell it, too.
    WantedOnce,
}

/// One server: its clock, its locks and who listens to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    now: Millis,
    locks: BTreeMap<Key, Lock>,
    listening: BTreeSet<u8>,
    constants: Constants,
    bug: Option<ServerBug>,
}

/// What the server keeps of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    held: Option<Held>,
    /// The fence: the first token of the last block, and what extensions added; zero: none is known.
    fence: Token,
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
    /// An empty server, at a time by its clock.
    #[must_use]
    pub fn new(now: Millis, constants: Constants) -> Self {
        Self {
            now,
            locks: BTreeMap::new(),
            listening: BTreeSet::new(),
            constants,
            bug: None,
        }
    }

    /// The same with a mistake.
    #[must_use]
    pub fn with_bug(self, bug: Option<ServerBug>) -> Self {
        Self { bug, ..self }
    }

    fn has(&self, bug: ServerBug) -> bool {
        self.bug == Some(bug)
    }

    /// The time by its clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Time goes by.
    pub fn pass(&mut self, time: Millis) {
        self.now += time;
        for lock in self.locks.values_mut() {
            lock.expire(self.now);
        }
    }

    /// A client listens from here on.
    pub fn join(&mut self, client: u8) {
        self.listening.insert(client);
    }

    /// Disconnects a client. Its owners stay in the wait queues until their turn.
    pub fn leave(&mut self, client: u8) {
        self.listening.remove(&client);
    }

    /// As [`leave`](Self::leave), and removes its owners from the wait queues.
    pub fn leave_all_queues(&mut self, client: u8) {
        self.leave(client);
        for lock in self.locks.values_mut() {
            lock.queue.retain(|(owner, _)| owner.client != client);
        }
    }

    /// The server starts again and knows nothing but the time, which has gone on.
    pub fn restart(&mut self) {
        self.pass(1);
        self.locks.clear();
    }

    /// The last token of a key is lost: evicted, say. The time has gone on since it was given.
    pub fn lose_token(&mut self, key: Key) {
        self.pass(1);
        self.lock(key).fence = 0;
    }

    /// Overwrites a key's last token by an invalid one.
    pub fn invalidate_token(&mut self, key: Key, instead: Token) {
        self.lock(key).fence = instead;
    }

    /// Takes locks, all or none; see `acquire.lua`.
    pub fn acquire(&mut self, ask: &Acquire, effects: &mut Effects) -> Acquired {
        acquire::acquire(self, ask, effects)
    }

    /// Releases a lock, or lowers a count; see `release.lua`.
    pub fn release(&mut self, release: &Release, effects: &mut Effects) -> Released {
        release::release(self, release, effects)
    }

    /// Extends leases; see `renew.lua`.
    pub fn renew(&mut self, batch: &[Renewal]) -> Vec<Renewed> {
        batch
            .iter()
            .map(|renewal| self.renew_one(renewal))
            .collect()
    }

    /// Gives the owner of a lock more tokens; see `extend.lua`.
    pub fn extend(&mut self, extend: &Extend, effects: &mut Effects) -> Extended {
        extend::extend(self, extend, effects)
    }

    fn renew_one(&mut self, renewal: &Renewal) -> Renewed {
        let (now, bug) = (self.now, self.bug);
        let lock = self.lock(renewal.key);
        if bug == Some(ServerBug::RenewalCreates) && lock.held.is_none() {
            lock.grant(renewal.owner, 1, now + renewal.lease);
        }
        let any = bug == Some(ServerBug::RenewalOfOthers);
        match &mut lock.held {
            Some(held) if any || held.by == Holder::Owner(renewal.owner) => {
                held.until = held.until.max(now + renewal.lease);
                Renewed {
                    held: true,
                    wanted: !lock.queue.is_empty(),
                }
            }
            _ => Renewed {
                held: false,
                wanted: false,
            },
        }
    }

    /// Who holds a lock; see `inspect.lua`.
    #[must_use]
    pub fn inspect(&self, key: Key) -> Option<Entry> {
        let lock = self.locks.get(&key)?;
        lock.held.as_ref().map(|held| Entry {
            holder: held.by,
            count: held.count,
            ttl: held.until - self.now,
            token: self.fence(key),
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

    /// The fence of a key that is known; zero: none.
    #[must_use]
    pub fn fence(&self, key: Key) -> Token {
        if self.is_invalid(key) {
            return 0;
        }
        self.locks.get(&key).map_or(0, |lock| lock.fence)
    }

    /// Returns whether the last token is invalid.
    fn is_invalid(&self, key: Key) -> bool {
        let lock = self.locks.get(&key);
        lock.is_some_and(|lock| lock.fence >= TOO_LARGE)
    }

    fn lock(&mut self, key: Key) -> &mut Lock {
        self.locks.entry(key).or_default()
    }

    pub(crate) fn holds(&self, key: Key, owner: Owner) -> bool {
        let held = self.locks.get(&key).and_then(|lock| lock.held.as_ref());
        held.is_some_and(|held| held.by == Holder::Owner(owner))
    }

    /// Reserves the next block and returns its first token, which the fence shows, as `next_token` in
    /// `library.lua`; or `None` if the last token is invalid.
    fn next_block(&mut self, key: Key) -> Option<Token> {
        let block = self.constants.block;
        // A release leaves one more.
        let advance = block + 1;
        if self.fence(key) + advance >= TOO_LARGE || self.is_invalid(key) {
            return None;
        }
        let restarts = self.is_below_floor(key);
        let fresh = self.micros() + 1;
        let lock = self.lock(key);
        lock.fence = if restarts {
            fresh
        } else {
            lock.fence + advance
        };
        Some(lock.fence)
    }

    /// Returns whether the last token was counted from nothing: it is unknown, or a release left it where
    /// none was known.
    fn is_below_floor(&self, key: Key) -> bool {
        let fence = self.fence(key);
        match self.bug {
            Some(ServerBug::TokensFromOne) => false,
            Some(ServerBug::TokensFromReleases) => fence == 0,
            _ => fence <= 1,
        }
    }

    /// The time in microseconds.
    fn micros(&self) -> Token {
        self.now * TOKENS_A_MILLISECOND
    }

    /// The block of a grant.
    fn block(&self, key: Key, owner: Owner, first: Token) -> Block {
        Block {
            key,
            owner,
            first,
            last: first + (self.constants.block - 1),
        }
    }

    fn dequeue(&mut self, key: Key) -> Option<(Owner, Millis)> {
        let queue = &mut self.lock(key).queue;
        (!queue.is_empty()).then(|| queue.remove(0))
    }

    /// As `hand_off` in `library.lua`. `joins` tells whether another owner joins the wait queue in the same
    /// step.
    fn hand_off(
        &mut self,
        (key, token): (Key, Token),
        mut first: Option<(Owner, Millis)>,
        requester: Option<Owner>,
        joins: bool,
        effects: &mut Effects,
    ) -> bool {
        while let Some((owner, since)) = first
            && Some(owner) != requester
        {
            if self.listening.contains(&owner.client) || self.has(ServerBug::HandOffToAbsent) {
                let Constants { grace, silent, .. } = self.constants;
                let now = self.now;
                let ttl = if self.has(ServerBug::GraceWithoutEnd) {
                    1000 * grace
                } else {
                    grace
                };
                self.lock(key).grant(owner, 1, now + ttl);
                effects.grants.push(self.block(key, owner, token));
                if !self.has(ServerBug::HandOffWithoutNotification) {
                    self.notify(
                        Notification::Granted {
                            key,
                            owner,
                            token,
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
            first = self.dequeue(key);
        }
        false
    }

    /// Notifies the owner of a lock that it is wanted.
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

    /// Notifies the first waiter when to ask again.
    fn notify_first(&self, key: Key, after: Millis, effects: &mut Effects) {
        if let Some(owner) = self.queue(key).first().copied() {
            self.notify(Notification::Retry { key, owner, after }, effects);
        }
    }

    /// Notifies the last waiter, if it is not the first.
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

    /// As `join_queue` in `library.lua`.
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
