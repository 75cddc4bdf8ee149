//! All locks of the embedded store, and what each request changes: renewals, counts, downgrades, releases.
//!
//! The maps hash keys, which contain foreign texts, by `foldhash` with a random seed, so a caller cannot choose keys that collide.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;
use uuid::Uuid;

use super::{Fences, LeaseHolder, LockState, wait_queues::WaitQueues};
use crate::{
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        Applied, DowngradeRequest, KeyFilter, Listener, MOST_SHOWN, Notification, ReleaseRequest,
        Renewal, RenewalOutcome, Renewed, SetCountRequest, StoredLock,
    },
};

/// The number of locks from which expired ones are swept.
const SWEEP_FROM: usize = 64;

/// The locks of a store, its wait queues, and the clients that it notifies.
#[derive(Clone, Default)]
pub struct State<F> {
    /// The source of new fences.
    pub fences: F,
    /// The locks that have a holder, or had one whose lease has ended since.
    pub locks: HashMap<Key, LockState, RandomState>,
    /// The owner whose lock was released last, for each key, until a time. Only members of a quorum remember it.
    pub(super) released: HashMap<Key, (OwnerId, Time), RandomState>,
    /// For each key and client, the sequence up to which acquires are refused, until a time. Only a single server remembers it.
    pub(super) refused: HashMap<(Key, Uuid), (u64, Time), RandomState>,
    /// The number of locks that the last sweep left. The next one is due at twice as many.
    swept: usize,
    /// The wait queues of the locks.
    pub queues: WaitQueues,
    /// The clients that are connected, each with what handles its notifications.
    pub clients: HashMap<Uuid, Listener, RandomState>,
    /// To be delivered once the mutex is free.
    pub messages: Vec<(Listener, Notification)>,
}

impl<F: Fences> State<F> {
    /// Sets the count of an owner, and extends its lease.
    pub fn set_count(&mut self, set: &SetCountRequest, now: Time) -> Applied {
        let Some(holder) = self.held_by(&set.key, set.owner, now) else {
            return Applied::NotHeld;
        };
        holder.count = set.count;
        holder.expires = holder.expires.max(now + set.lease);
        Applied::Done
    }

    /// Makes the exclusive lock of an owner a shared one, and lets the first waiters in that share it.
    pub fn downgrade(&mut self, downgrade: &DowngradeRequest, now: Time) -> Applied {
        let (key, owner) = (&downgrade.key, downgrade.owner);
        self.share(key, owner, now);
        if self.held_by(key, owner, now).is_none() {
            return Applied::NotHeld;
        }
        self.hand_off(key, None, false, now);
        Applied::Done
    }

    /// Releases a lock, which goes to its first waiters. An owner that only waits leaves the queue.
    pub fn release(&mut self, release: &ReleaseRequest, now: Time) -> Applied {
        let (key, owner) = (&release.key, release.owner);
        self.share(key, owner, now);
        let keeps = !release.min_hold.is_zero();
        if keeps && let Some(holder) = self.held_by(key, owner, now) {
            *holder = LeaseHolder::new(owner.kept(), now + release.min_hold);
            self.ask_first(key, release.min_hold, now);
        } else if !keeps && self.leave(key, owner, now) {
            self.hand_off(key, None, false, now);
        } else {
            self.leave_queue(release, now);
            return Applied::NotHeld;
        }
        Applied::Done
    }

    /// Refuses late acquires of an owner, and of earlier ones of its client, for this time.
    pub fn refuse_late(&mut self, key: &Key, owner: OwnerId, ttl: Duration, now: Time) {
        self.refused.retain(|_, (_, until)| *until > now);
        let last = self.refused.entry((key.clone(), owner.client()));
        let (last, until) = last.or_insert((0, now));
        (*last, *until) = (owner.sequence().max(*last), now + ttl);
    }

    /// Returns whether acquires of this owner are refused.
    #[must_use]
    pub fn is_refused(&self, key: &Key, owner: OwnerId, now: Time) -> bool {
        let last = self.refused.get(&(key.clone(), owner.client()));
        last.is_some_and(|(last, until)| *until > now && owner.sequence() <= *last)
    }

    /// Removes an owner that only waited. The waiters behind it may share the lock. Otherwise the next waiter asks,
    /// and learns that it is the first.
    fn leave_queue(&mut self, release: &ReleaseRequest, now: Time) {
        let (key, owner) = (&release.key, release.owner);
        let is_first = self.queues.first(key) == Some(owner);
        self.queues.leave(key, owner);
        if is_first {
            if self.live(key, now).is_some() {
                self.hand_off(key, None, false, now);
            }
            self.ask_first(key, release.min_hold, now);
        }
    }

    /// Renews leases that have not ended, which never makes them end sooner. Never grants a lock. A lease of zero only asks whether the lock is held.
    pub fn renew(&mut self, renewals: &[Renewal], lease: Duration, now: Time) -> Renewed {
        let renew = |Renewal { claim, fence, .. }: &Renewal| {
            self.share(&claim.key, claim.owner, now);
            let Some(holder) = self.held_by(&claim.key, claim.owner, now) else {
                return RenewalOutcome::Lost;
            };
            if !lease.is_zero() {
                holder.expires = holder.expires.max(now + lease);
            }
            let last = self.live(&claim.key, now).map(|lock| lock.fence);
            let new_fence = match last {
                Some(last) if *fence > last => self.set_next_fence(&claim.key),
                _ => 0,
            };
            RenewalOutcome::Held {
                fence: new_fence,
                wanted: self.is_wanted(&claim.key),
            }
        };
        Renewed {
            kept: renewals.iter().map(renew).collect(),
            sent_at: now,
        }
    }

    /// Returns who holds a lock and who waits for it, or `None` if it is free.
    pub fn inspect(&mut self, key: &Key, now: Time) -> Option<StoredLock> {
        let queue = self.queues.of(key).take(MOST_SHOWN).collect();
        let lock = self.live(key, now)?;
        let first = lock.holders.first()?;
        let others = lock.holders.iter().skip(1).take(MOST_SHOWN - 1);
        Some(StoredLock {
            owner: first.owner.to_string(),
            count: first.count,
            ttl: Some(lock.expires().since(now)),
            fence: Some(lock.fence),
            other_fences: Vec::new(),
            queue,
            holders: lock.holders.len(),
            permits_taken: lock.permits_taken(),
            others: others.map(|holder| holder.owner).collect(),
        })
    }

    /// Takes a lock from its holders, notifies them, and hands the lock off. Returns whether it was held.
    pub fn revoke(&mut self, key: &Key, now: Time) -> bool {
        if self.live(key, now).is_none() {
            return false;
        }
        let lock = self.locks.remove(key);
        for holder in lock.into_iter().flat_map(|lock| lock.holders) {
            self.tell_taken(key, holder.owner);
        }
        self.hand_off(key, None, false, now);
        true
    }

    /// Notifies an owner that its lock was taken.
    pub fn tell_taken(&mut self, key: &Key, owner: OwnerId) {
        let taken = key.clone();
        let notification = match owner.mode() {
            LockMode::Exclusive => Notification::Changed(taken),
            _ => Notification::SomeChanged(KeyFilter::One(taken)),
        };
        self.notify(owner.client(), notification);
    }

    /// Gives a lock that is there the next fence. Returns that.
    pub(super) fn set_next_fence(&mut self, key: &Key) -> u64 {
        let next = self.fences.next();
        if let Some(lock) = self.locks.get_mut(key) {
            lock.fence = next;
        }
        next
    }

    /// Returns the last fence of a lock, or a larger one that its next fence exceeds.
    pub(super) fn last_fence(&self, key: &Key) -> u64 {
        let lock = self.locks.get(key);
        lock.map_or_else(|| self.fences.last(), |lock| lock.fence)
    }

    /// Returns the lock on `key` without the holders whose leases have ended.
    pub(super) fn live(&mut self, key: &Key, now: Time) -> Option<&mut LockState> {
        let Entry::Occupied(mut lock) = self.locks.entry(key.clone()) else {
            return None;
        };
        lock.get_mut().holders.retain(|holder| holder.expires > now);
        if lock.get().holders.is_empty() {
            lock.remove();
            return None;
        }
        Some(lock.into_mut())
    }

    /// Returns this owner as a holder of the lock, if it is one.
    pub fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut LeaseHolder> {
        let lock = self.live(key, now)?;
        lock.holders.iter_mut().find(|it| it.owner == owner)
    }

    /// Makes an exclusive lock a shared one, if the owner had it.
    pub(super) fn share(&mut self, key: &Key, owner: OwnerId, now: Time) {
        if let Some(former) = owner.before_downgrade()
            && let Some(holder) = self.held_by(key, former, now)
        {
            (holder.owner, holder.count) = (owner, 1);
        }
    }

    /// Takes a lock from an owner. Returns whether the owner held it.
    pub(super) fn leave(&mut self, key: &Key, owner: OwnerId, now: Time) -> bool {
        let Entry::Occupied(mut lock) = self.locks.entry(key.clone()) else {
            return false;
        };
        let holders = &mut lock.get_mut().holders;
        holders.retain(|holder| holder.expires > now);
        let before = holders.len();
        holders.retain(|holder| holder.owner != owner);
        let was_held = holders.len() < before;
        if holders.is_empty() {
            lock.remove();
        }
        was_held
    }

    pub(super) fn is_wanted(&self, key: &Key) -> bool {
        self.queues.first(key).is_some()
    }

    /// Grants a lock that admits the owner, or is the owner's own. Returns its fence.
    pub(super) fn grant(&mut self, key: &Key, owner: OwnerId, ttl: Duration, now: Time) -> u64 {
        let mut is_new = true;
        if let Some(lock) = self.live(key, now)
            && let Some(holder) = lock.holders.iter_mut().find(|it| it.owner == owner)
        {
            is_new = false;
            holder.expires = holder.expires.max(now + ttl);
            if owner.mode() == LockMode::Exclusive {
                return lock.fence;
            }
        }
        self.sweep(now);
        let next = self.fences.next();
        let lock = self.locks.entry(key.clone());
        let lock = lock.or_insert_with(LockState::empty);
        lock.fence = next;
        if is_new {
            lock.holders.push(LeaseHolder::new(owner, now + ttl));
        }
        next
    }

    /// Removes expired locks, but only when the number of locks has doubled, so that it costs little for each new lock.
    pub(super) fn sweep(&mut self, now: Time) {
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires() > now);
            self.swept = self.locks.len();
        }
    }

    /// Returns the keys of all locks.
    pub fn held(&self, now: Time) -> Vec<Key> {
        let live = self.locks.iter().filter(|(_, lock)| lock.expires() > now);
        live.map(|(key, _)| key.clone()).collect()
    }

    /// Notifies a client. Returns whether the client is there.
    pub fn notify(&mut self, client: Uuid, notification: Notification) -> bool {
        let listener = self.clients.get(&client);
        let message = listener.map(|listener| (Arc::clone(listener), notification));
        let is_there = message.is_some();
        self.messages.extend(message);
        is_there
    }
}
