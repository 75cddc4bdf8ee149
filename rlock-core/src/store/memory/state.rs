//! The locks of an embedded store. Each operation follows the rules of the Lua scripts in `store/redis/scripts`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use uuid::Uuid;

use super::{fences, wait_queues::WaitQueues};
use crate::{
    key::Key,
    lease::Time,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Claim, Entry, Event, GRACE, Listener, QueuePlace, ReleaseRequest,
        Released, Renewal, RenewalOutcome, Renewed,
    },
};

/// A waiter that has been silent for longer than this may be dead.
const LONGEST_SILENCE: Duration = Duration::from_millis(50);
/// The number of waiters that an inspection shows.
const MOST_QUEUED: usize = 100;
/// The number of locks from which expired ones are swept.
const SWEEP_FROM: usize = 64;

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) locks: HashMap<Key, Lock>,
    /// The number of locks that the last sweep left. The next one is due at twice as many.
    swept: usize,
    pub(crate) queues: WaitQueues,
    pub(crate) clients: HashMap<Uuid, Listener>,
    /// To be delivered once the mutex is free.
    pub(crate) messages: Vec<(Listener, Event)>,
}

#[derive(Clone)]
pub(crate) struct Lock {
    owner: OwnerId,
    count: u32,
    fence: u64,
    pub(crate) expires: Time,
}

impl State {
    pub(crate) fn acquire(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let (claims, count, waits) = (&request.claims, request.count, request.waits);
        let mut taken = None;
        for (n, claim) in claims.iter().enumerate() {
            match self.live(&claim.key, now) {
                None if count > 1 => return Acquired::NotOwner,
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
                fences: claims.iter().map(grant).collect(),
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
        let fence = fences::last();
        Acquired::Taken {
            claim: taken,
            ttl: Some(expires.since(now)),
            queued: waits.then_some(QueuePlace { first, watched }),
            sent_at: now,
            fences: claims.iter().map(|_| fence).collect(),
            retired: false,
        }
    }

    /// Hands off the locks that one of several claims must not keep: those that were handed to it while it
    /// waited, and free ones before the one that is taken.
    fn hand_off_others(&mut self, claims: &[Claim], taken: usize, now: Time) {
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            if n < taken || self.held_by(key, *owner, now).is_some() {
                self.locks.remove(key);
                self.hand_off(key, None, false, now);
            }
        }
    }

    pub(crate) fn release(&mut self, release: &ReleaseRequest, now: Time) -> Released {
        let (key, owner) = (&release.key, release.owner);
        let Some(lock) = self.held_by(key, owner, now) else {
            if release.count == 0 {
                self.leave_queue(release);
            }
            return Released::NotHeld;
        };
        if release.count > 0 {
            lock.count = release.count;
        } else if release.at_least.is_zero() {
            self.locks.remove(key);
            self.hand_off(key, None, false, now);
        } else {
            (lock.owner, lock.count, lock.expires) = (OwnerId::KEPT, 1, now + release.at_least);
            self.ask_again(key, self.queues.first(key), release.at_least);
        }
        Released::Done
    }

    /// Removes an owner that only waited. The next waiter asks, and learns that it is the first.
    fn leave_queue(&mut self, release: &ReleaseRequest) {
        let (key, owner) = (&release.key, release.owner);
        let is_first = self.queues.first(key) == Some(owner);
        self.queues.leave(key, owner);
        if is_first {
            self.ask_again(key, self.queues.first(key), release.at_least);
        }
    }

    pub(crate) fn renew(&mut self, renewals: &[Renewal], lease: Duration, now: Time) -> Renewed {
        let renew = |Renewal { claim, fence }: &Renewal| {
            let Some(lock) = self.held_by(&claim.key, claim.owner, now) else {
                return RenewalOutcome::Lost;
            };
            if !lease.is_zero() {
                lock.expires = now + lease;
            }
            let is_new = *fence > lock.fence;
            if is_new {
                lock.fence = fences::next();
            }
            RenewalOutcome::Held {
                fence: if is_new { lock.fence } else { 0 },
                wanted: self.is_wanted(&claim.key),
            }
        };
        Renewed {
            kept: renewals.iter().map(renew).collect(),
            sent_at: now,
        }
    }

    pub(crate) fn inspect(&mut self, key: &Key, now: Time) -> Option<Entry> {
        let queue = self.queues.of(key).take(MOST_QUEUED).collect();
        self.live(key, now).map(|lock| Entry {
            owner: lock.owner.to_string(),
            count: lock.count,
            ttl: Some(lock.expires.since(now)),
            fence: Some(lock.fence),
            queue,
        })
    }

    /// Takes a lock from its holder, notifies the holder, and hands the lock off. Returns whether it was held.
    pub(crate) fn revoke(&mut self, key: &Key, now: Time) -> bool {
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

    pub(crate) fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut Lock> {
        self.live(key, now).filter(|it| it.owner == owner)
    }

    fn is_wanted(&self, key: &Key) -> bool {
        self.queues.first(key).is_some()
    }

    /// Grants a lock that is free, or is the owner's own. Returns its fence.
    fn grant(&mut self, key: &Key, owner: OwnerId, ttl: Duration, count: u32, now: Time) -> u64 {
        if let Some(lock) = self.live(key, now) {
            lock.count = count;
            lock.expires = lock.expires.max(now + ttl);
            return lock.fence;
        }
        // Expired locks are removed, seldom enough to cost little for each new one.
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires > now);
            self.swept = self.locks.len();
        }
        let fence = fences::next();
        let lock = Lock {
            owner,
            count,
            fence,
            expires: now + ttl,
        };
        self.locks.insert(key.clone(), lock);
        fence
    }

    /// Hands a free lock to the first waiter. Returns `false` if there is none, or if that waiter `asks` just now. With
    /// `joins`, another owner joins the queue after this. Clients that are gone have left all queues.
    fn hand_off(&mut self, key: &Key, asks: Option<OwnerId>, joins: bool, now: Time) -> bool {
        let first = self.queues.take_first(key);
        let Some((owner, since)) = first.filter(|(owner, _)| asks != Some(*owner)) else {
            return false;
        };
        let fence = self.grant(key, owner, GRACE, 1, now);
        let event = Event::Granted {
            key: key.clone(),
            owner,
            fence,
            ttl: GRACE,
            wanted: joins || self.is_wanted(key),
        };
        self.notify(owner.client(), event);
        // The waiter may be dead. The next and the last waiter retry after the grace period: the last one asked most
        // recently.
        if now.since(since) > LONGEST_SILENCE {
            let mut others = self.queues.of(key);
            let (next, last) = (others.next(), others.last());
            self.ask_again(key, next, GRACE);
            self.ask_again(key, last, GRACE);
        }
        true
    }

    fn ask_again(&mut self, key: &Key, owner: Option<OwnerId>, after: Duration) {
        let Some(owner) = owner else { return };
        let key = key.clone();
        self.notify(owner.client(), Event::Retry { key, owner, after });
    }

    /// Returns the keys of all locks.
    pub(crate) fn held(&self, now: Time) -> Vec<Key> {
        let live = self.locks.iter().filter(|(_, lock)| lock.expires > now);
        live.map(|(key, _)| key.clone()).collect()
    }

    /// Notifies a client. Returns whether the client is there.
    pub(crate) fn notify(&mut self, client: Uuid, event: Event) -> bool {
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
            let release = ReleaseRequest::whole(&asks(0).claims[0]);
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
