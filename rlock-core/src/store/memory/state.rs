//! The locks of an embedded store. Each operation follows the rules of the Lua scripts in `store/redis/scripts`.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use uuid::Uuid;

use super::wait_queues::WaitQueues;
use crate::{
    key::Key,
    lease::{Time, wall_clock_micros},
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Claim, Entry, Event, GRACE, Grant, HandOff, Listener, NextLocal,
        QueuePlace, ReleaseRequest, Released, RenewalOutcome, Renewed, TokenBlock,
    },
};

/// How many released owners are remembered, to reply to a repeated release as to the first.
const REMEMBERED_RELEASES: usize = 64;
/// A waiter that has been silent for longer than this may be dead.
const LONGEST_SILENCE: Duration = Duration::from_millis(50);
/// The number of waiters that an inspection shows.
const MOST_QUEUED: usize = 100;
/// The number of locks from which expired ones are swept.
const SWEEP_FROM: usize = 64;

#[derive(Default)]
pub(super) struct State {
    pub(super) locks: HashMap<Key, Lock>,
    /// The number of locks that the last sweep left. The next one is due at twice as many.
    swept: usize,
    pub(super) last_token: u64,
    released: VecDeque<OwnerId>,
    pub(super) queues: WaitQueues,
    pub(super) clients: HashMap<Uuid, Listener>,
    /// To be delivered once the mutex is free.
    pub(super) messages: Vec<(Listener, Event)>,
}

pub(super) struct Lock {
    owner: OwnerId,
    count: u32,
    token: u64,
    pub(super) expires: Time,
}

fn queued(since: Time) -> HandOff {
    let place = QueuePlace::first(true);
    HandOff::Queued { since, place }
}

impl State {
    pub(super) fn acquire(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let (claims, count, waits) = (&request.claims, request.count, request.waits);
        let mut taken = None;
        for (n, claim) in claims.iter().enumerate() {
            match self.live(&claim.key, now) {
                None if count > 1 => return Acquired::NotHeld,
                Some(lock) if lock.owner != claim.owner => {
                    taken = Some(n);
                    break;
                }
                _ => {}
            }
        }
        let was_taken = taken.is_some();
        // A lock that ended by its lease goes to its first waiter.
        let taken = taken.or_else(|| {
            claims.iter().position(|Claim { key, owner }| {
                self.live(key, now).is_none() && self.hand_off(key, Some(*owner), waits, now)
            })
        });
        let Some(taken) = taken else {
            let lease = request.lease;
            let grant = |Claim { key, owner }: &Claim| self.grant(key, *owner, lease, count, now);
            return Acquired::Granted {
                tokens: claims.iter().map(grant).collect(),
                wanted: claims.iter().any(|claim| self.is_wanted(&claim.key)),
                sent_at: now,
            };
        };
        if claims.len() > 1 && count == 1 {
            self.hand_off_others(claims, taken, now);
        }
        let Claim { key, owner } = &claims[taken];
        if waits {
            self.queues.join(key, *owner, now);
        }
        let last = TokenBlock {
            first: self.last_token,
            size: 1,
        };
        let lock = self.live(key, now);
        let (expires, holder) = lock.map_or((now, None), |lock| (lock.expires, Some(lock.owner)));
        let first = self.queues.first(key) == Some(*owner);
        let watched = true;
        // A caller that does not wait can get the lock at its next attempt.
        let tries = !waits && count == 1;
        if let Some(owner) = holder.filter(|_| was_taken && (waits && first || tries)) {
            let key = key.clone();
            self.notify(owner.client(), Event::Wanted { key, owner });
        }
        Acquired::Held {
            claim: taken,
            ttl: Some(expires.since(now)),
            queued: waits.then_some(QueuePlace { first, watched }),
            sent_at: now,
            fences: claims.iter().map(|_| last.fence()).collect(),
            retired: false,
        }
    }

    /// Hands off the locks that one of several claims must not keep: those that were handed to it while it
    /// waited, and free ones before the one that is taken.
    fn hand_off_others(&mut self, claims: &[Claim], taken: usize, now: Time) {
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            let is_held = self.held_by(key, *owner, now).is_some();
            if is_held {
                self.locks.remove(key);
            }
            if is_held || n < taken && self.live(key, now).is_none() {
                self.hand_off(key, None, false, now);
            }
        }
    }

    pub(super) fn release(&mut self, release: &ReleaseRequest, now: Time) -> Released {
        let (key, owner, next) = (&release.key, release.owner, release.next);
        let Some(lock) = self.held_by(key, owner, now) else {
            if release.count > 0 {
                return Released::NotHeld;
            }
            self.leave_queue(key, owner);
            return match self.outcome_for_next(key, next, now) {
                HandOff::Unknown if !self.released.contains(&owner) => Released::NotHeld,
                // An earlier copy of the release named the waiter.
                outcome => Released::Done(outcome),
            };
        };
        if release.count > 0 {
            lock.count = release.count;
            return Released::Done(HandOff::Unknown);
        }
        let outcome = if release.at_least.is_zero() {
            self.locks.remove(key);
            self.pass_on(key, next, now)
        } else {
            (lock.owner, lock.count, lock.expires) = (OwnerId::KEPT, 1, now + release.at_least);
            self.ask_again(key, self.queues.first(key), release.at_least);
            HandOff::Unknown
        };
        self.released.push_front(owner);
        self.released.truncate(REMEMBERED_RELEASES);
        Released::Done(outcome)
    }

    /// Removes an owner that only waited. The next waiter asks, and learns that it is the first.
    fn leave_queue(&mut self, key: &Key, owner: OwnerId) {
        let is_first = self.queues.first(key) == Some(owner);
        self.queues.leave(key, owner);
        if is_first {
            self.ask_again(key, self.queues.first(key), Duration::ZERO);
        }
    }

    /// Gives a free lock to the first waiter, or else to the next of the same process.
    fn pass_on(&mut self, key: &Key, next: Option<NextLocal>, now: Time) -> HandOff {
        let handed_off = self.hand_off(key, None, next.is_some(), now);
        match next {
            Some(next) if handed_off && self.held_by(key, next.owner, now).is_none() => {
                self.queues.join(key, next.owner, now);
                return queued(now);
            }
            Some(NextLocal { owner, lease }) if !handed_off => {
                self.grant(key, owner, lease, 1, now);
            }
            _ => {}
        }
        self.outcome_for_next(key, next, now)
    }

    /// Returns the outcome for the waiter that a release named.
    fn outcome_for_next(&mut self, key: &Key, next: Option<NextLocal>, now: Time) -> HandOff {
        let Some(NextLocal { owner, lease }) = next else {
            return HandOff::Unknown;
        };
        if let Some(lock) = self.held_by(key, owner, now) {
            lock.expires = lock.expires.max(now + lease);
            return HandOff::Granted(Grant {
                block: TokenBlock::granted(lock.token),
                since: now,
                ttl: lease,
                wanted: false,
            });
        }
        if self.queues.has(key, owner) {
            return queued(now);
        }
        HandOff::Unknown
    }

    pub(super) fn renew(&mut self, claims: &[Claim], lease: Duration, now: Time) -> Renewed {
        let renew = |claim: &Claim| {
            let lock = self.held_by(&claim.key, claim.owner, now);
            let held = lock.map(|lock| lock.expires = now + lease);
            RenewalOutcome::by_one(held.is_some(), self.is_wanted(&claim.key))
        };
        Renewed {
            kept: claims.iter().map(renew).collect(),
            sent_at: now,
        }
    }

    /// Reserves further tokens for an owner that holds the lock.
    pub(super) fn extend(&mut self, claim: &Claim, tokens: u64, now: Time) -> Option<TokenBlock> {
        let block = TokenBlock {
            first: self.last_token + 1,
            size: tokens,
        };
        let lock = self.held_by(&claim.key, claim.owner, now)?;
        if tokens < 2 {
            // As on a server, where one alone would pass for the mark of a release.
            return Some(TokenBlock::EMPTY);
        }
        lock.token = block.fence();
        self.last_token = block.last();
        Some(block)
    }

    pub(super) fn inspect(&mut self, key: &Key, now: Time) -> Option<Entry> {
        let queue = self.queues.of(key).take(MOST_QUEUED).collect();
        self.live(key, now).map(|lock| Entry {
            owner: lock.owner.to_string(),
            count: lock.count,
            ttl: Some(lock.expires.since(now)),
            token: Some(lock.token),
            queue,
        })
    }

    /// Takes a lock from its holder, notifies the holder, and hands the lock off. Returns whether it was held.
    pub(super) fn revoke(&mut self, key: &Key, now: Time) -> bool {
        let Some(lock) = self.live(key, now) else {
            return false;
        };
        let owner = lock.owner;
        self.notify(owner.client(), Event::Changed(key.clone()));
        self.locks.remove(key);
        self.hand_off(key, None, false, now);
        true
    }

    /// Returns the lock on `key`, unless it has expired.
    fn live(&mut self, key: &Key, now: Time) -> Option<&mut Lock> {
        if self.locks.get(key).is_some_and(|lock| lock.expires <= now) {
            self.locks.remove(key);
        }
        self.locks.get_mut(key)
    }

    pub(super) fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut Lock> {
        self.live(key, now).filter(|it| it.owner == owner)
    }

    fn is_wanted(&self, key: &Key) -> bool {
        self.queues.first(key).is_some()
    }

    /// Grants a lock that is free, or is the owner's own. Returns its token.
    fn grant(&mut self, key: &Key, owner: OwnerId, ttl: Duration, count: u32, now: Time) -> u64 {
        if let Some(lock) = self.live(key, now) {
            lock.count = count;
            lock.expires = lock.expires.max(now + ttl);
            return lock.token;
        }
        // Expired locks are removed, seldom enough to cost little for each new one.
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires > now);
            self.swept = self.locks.len();
        }
        let block = TokenBlock::granted(self.last_token.max(wall_clock_micros()) + 1);
        self.last_token = block.last();
        let lock = Lock {
            owner,
            count,
            token: block.first,
            expires: now + ttl,
        };
        self.locks.insert(key.clone(), lock);
        block.first
    }

    /// Hands a free lock to the first waiter whose client still exists. Returns `false` if there is none, or
    /// if that waiter `asks` just now. With `joins`, another owner joins the queue after this.
    fn hand_off(&mut self, key: &Key, asks: Option<OwnerId>, joins: bool, now: Time) -> bool {
        while let Some((owner, since)) = self.queues.take_first(key) {
            match self.clients.contains_key(&owner.client()) {
                false => continue,
                true if asks == Some(owner) => return false,
                true => {}
            }
            let token = self.grant(key, owner, GRACE, 1, now);
            let event = Event::Granted {
                key: key.clone(),
                owner,
                block: TokenBlock::granted(token),
                ttl: GRACE,
                wanted: joins || self.is_wanted(key),
            };
            self.notify(owner.client(), event);
            // The waiter may be dead. The next and the last waiter retry after the grace period: the last one was
            // heard of most recently.
            if now.since(since) > LONGEST_SILENCE {
                let mut others = self.queues.of(key);
                let (next, last) = (others.next(), others.last());
                self.ask_again(key, next, GRACE);
                self.ask_again(key, last, GRACE);
            }
            return true;
        }
        false
    }

    fn ask_again(&mut self, key: &Key, owner: Option<OwnerId>, after: Duration) {
        let Some(owner) = owner else { return };
        let key = key.clone();
        self.notify(owner.client(), Event::Retry { key, owner, after });
    }

    /// Returns the keys of all locks.
    pub(super) fn held(&self, now: Time) -> Vec<Key> {
        let live = self.locks.iter().filter(|(_, lock)| lock.expires > now);
        live.map(|(key, _)| key.clone()).collect()
    }

    /// Notifies a client. Returns whether the client is there.
    pub(super) fn notify(&mut self, client: Uuid, event: Event) -> bool {
        let listener = self.clients.get(&client);
        let message = listener.map(|listener| (Arc::clone(listener), event));
        let is_there = message.is_some();
        self.messages.extend(message);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn owner(sequence: u64) -> OwnerId {
        OwnerId::new(Uuid::nil(), sequence)
    }

    fn request(key: &str, owner: OwnerId) -> AcquireRequest {
        let key = Key::parse(key).expect("valid");
        AcquireRequest {
            claims: Arc::new([Claim { key, owner }]),
            lease: LEASE,
            count: 1,
            waits: false,
        }
    }

    #[test]
    fn a_repeated_release_answers_what_the_first_one_answered() {
        let key = Key::parse("k").expect("valid");
        let mut state = State::default();
        let release = |sequence| ReleaseRequest::whole(&request("k", owner(sequence)).claims[0], 0);
        let released = Released::Done(HandOff::Unknown);
        let now = Time::from(LEASE);
        state.acquire(&request("k", owner(1)), now);
        assert_eq!(state.release(&release(1), now), released);
        state.acquire(&request("k", owner(2)), now);
        assert_eq!(state.release(&release(1), now), released);
        assert_eq!(state.release(&release(3), now), Released::NotHeld);
        assert!(state.held_by(&key, owner(2), now).is_some());
    }

    #[test]
    fn the_next_and_the_last_waiter_retry_after_a_silent_one() {
        for (waited, retries) in [(LONGEST_SILENCE, vec![]), (LONGEST_SILENCE * 2, vec![2, 4])] {
            let mut state = State::default();
            let clients: Vec<_> = (0..5).map(Uuid::from_u128).collect();
            let asks = |n: usize| AcquireRequest {
                waits: true,
                ..request("k", OwnerId::new(clients[n], 1))
            };
            let now = Time::from(LEASE);
            for (n, client) in clients.iter().enumerate() {
                state.clients.insert(*client, Arc::new(|_| {}));
                state.acquire(&asks(n), now);
            }
            let release = ReleaseRequest::whole(&asks(0).claims[0], 0);
            state.release(&release, now + waited);
            let notified = std::mem::take(&mut state.messages).into_iter();
            let notified = notified.filter_map(|(_, event)| {
                let Event::Retry { owner, after, .. } = event else {
                    return None;
                };
                Some((owner.client(), after))
            });
            let retries: Vec<_> = retries.into_iter().map(|n| (clients[n], GRACE)).collect();
            assert_eq!(notified.collect::<Vec<_>>(), retries, "after {waited:?}");
        }
    }

    #[test]
    fn expired_locks_do_not_pile_up() {
        let mut state = State::default();
        for n in 0..10_000 {
            let request = AcquireRequest {
                lease: Duration::ZERO,
                ..request(&format!("k:{n}"), owner(n))
            };
            state.acquire(&request, Time::from(LEASE));
        }
        assert!(state.locks.len() <= 2 * SWEEP_FROM, "{}", state.locks.len());
    }
}
