//! The server: each Lua script is one step of a pure state machine.
//!
//! Its clock only moves with [`Server::pass`], and it sends nothing: a step returns its
//! notifications and grants in [`Effects`]. So it can be explored exhaustively, and compared with
//! real servers.

mod acquire;
mod extend;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use crate::words::{
    Acquire, Acquired, BLOCK, Block, Claim, Effects, Entry, Extend, Extended, History, Holder, Key,
    Known, Millis, Notification, Owner, Release, Released, Renewal, Renewed, Token,
};

/// The number of tokens that correspond to a millisecond. Without a fence, tokens restart at the
/// time in microseconds.
const TOKENS_A_MILLISECOND: Token = 1000;

/// The limit of fencing tokens. The scripts use doubles, which are exact below it.
pub const TOO_LARGE: Token = 1 << 53;

/// The constants of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    /// The grace period of a handed-off lock.
    pub grace: Millis,
    /// A waiter that was silent for longer may be dead.
    pub silent: Millis,
    /// The lifetime of a wait queue that no owner joins.
    pub queue: Millis,
    /// The number of tokens in a grant.
    pub block: Token,
}

impl Constants {
    /// The constants of the real scripts.
    pub const REAL: Self = Self {
        grace: 1_000,
        silent: 50,
        queue: 20_000,
        block: BLOCK,
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
    /// Without a fence, tokens restart at one.
    TokensFromOne,
    /// Without a fence, a release starts to count, and the next grant continues from there.
    TokensFromReleases,
    /// A handed-off lock keeps its tokens.
    TokenReused,
    /// The next grant reserves the tokens of an extension again.
    ExtensionForgotten,
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
    history: History,
    constants: Constants,
    bug: Option<ServerBug>,
}

/// The data of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    held: Option<Held>,
    /// The fence: the first token of the last block, plus all extensions. Zero: no fence.
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
    /// Creates an empty server with this time.
    #[must_use]
    pub fn new(now: Millis, constants: Constants) -> Self {
        Self {
            now,
            locks: BTreeMap::new(),
            listening: BTreeSet::new(),
            history: 0,
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

    /// Restarts the server without data. The time has advanced.
    pub fn restart(&mut self) {
        self.pass(1);
        self.locks.clear();
    }

    /// Loses the fence of a key, for example by eviction. The time has advanced since the last
    /// grant.
    pub fn lose_token(&mut self, key: Key) {
        self.pass(1);
        self.lock(key).fence = 0;
    }

    /// Fails over to a former master that missed the last grant of a free lock. Clients have stayed connected to it.
    /// Time passes meanwhile.
    pub fn miss_grant(&mut self, key: Key) {
        self.pass(1);
        self.history += 1;
        let advance = self.constants.block + 1;
        let lock = self.lock(key);
        lock.fence = lock.fence.saturating_sub(advance);
    }

    /// Overwrites the fence of a key with an invalid token.
    pub fn invalidate_token(&mut self, key: Key, instead: Token) {
        self.lock(key).fence = instead;
    }

    /// Acquires locks, all or none; see `acquire.lua`.
    pub fn acquire(&mut self, ask: &Acquire, effects: &mut Effects) -> Acquired {
        acquire::acquire(self, ask, effects)
    }

    /// Releases a lock, or lowers a count; see `release.lua`.
    pub fn release(&mut self, release: &Release, effects: &mut Effects) -> Released {
        release::release(self, release, effects)
    }

    /// Extends leases; see `renew.lua`.
    pub fn renew(&mut self, Renewal { claims, lease }: &Renewal) -> Vec<Renewed> {
        let renew = |claim: &Claim| self.renew_one(*claim, *lease);
        claims.iter().map(renew).collect()
    }

    /// Extends the tokens of a lock's owner; see `extend.lua`.
    pub fn extend(&mut self, extend: &Extend, effects: &mut Effects) -> Extended {
        extend::extend(self, extend, effects)
    }

    fn renew_one(&mut self, claim: Claim, lease: Millis) -> Renewed {
        let (until, bug) = (self.now + lease, self.bug);
        let lock = self.lock(claim.key);
        if bug == Some(ServerBug::RenewalCreates) && lock.held.is_none() {
            lock.grant(claim.owner, 1, until);
        }
        let any = bug == Some(ServerBug::RenewalOfOthers);
        match &mut lock.held {
            Some(held) if any || held.by == Holder::Owner(claim.owner) => {
                held.until = until;
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

    /// Returns the holder of a lock; see `inspect.lua`.
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

    /// Returns the fence of a key; zero if there is none.
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

    /// Reserves the next block and returns its first token, which becomes the fence, like
    /// `next_token` in `library.lua`. Returns `None` if the fence is invalid.
    fn next_block(&mut self, key: Key, known: Known) -> Option<Token> {
        let block = self.constants.block;
        // A release adds one more.
        let advance = block + 1;
        if self.fence(key) + advance >= TOO_LARGE || self.is_invalid(key) {
            return None;
        }
        let is_lost = self.is_fence_lost(key);
        let next = self.fence(key) + advance;
        let least = if self.may_miss_grants(known) {
            self.restart_time()
        } else {
            known.least
        };
        let restarts = is_lost || next < least;
        let restarted = self.restart_time().max(known.least);
        let lock = self.lock(key);
        lock.fence = if restarts { restarted } else { next };
        Some(lock.fence)
    }

    /// Returns whether this server took over after the client learned its history. A client with a recent write sends
    /// no history, and the server then detects nothing.
    fn may_miss_grants(&self, known: Known) -> bool {
        known.history.is_some_and(|history| history != self.history)
    }

    /// Returns whether there is no fence, or only the count of a release.
    fn is_fence_lost(&self, key: Key) -> bool {
        let fence = self.fence(key);
        match self.bug {
            Some(ServerBug::TokensFromOne) => false,
            Some(ServerBug::TokensFromReleases) => fence == 0,
            _ => fence <= 1,
        }
    }

    /// The server's history, and a token that is larger than all before.
    pub(crate) fn start(&self) -> (History, Token) {
        (self.history, self.restart_time())
    }

    /// Returns the token from which tokens restart.
    fn restart_time(&self) -> Token {
        self.micros() + 1
    }

    /// Returns the time in microseconds.
    fn micros(&self) -> Token {
        self.now * TOKENS_A_MILLISECOND
    }

    /// Returns the block of a grant.
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

    /// Like `hand_off` in `library.lua`. `joins`: another owner joins the wait queue in the same
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

    /// Like `join_queue` in `library.lua`.
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
