//! The locks of an embedded store. Each operation follows the rules of the Lua scripts in `store/redis/scripts`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use smallvec::SmallVec;
use uuid::Uuid;

use super::{Fences, wait_queues::WaitQueues};
use crate::{
    few::Few,
    key::Key,
    lease::Time,
    mode::Mode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Claim, GRACE, KeyFilter, Listener, Notification, QueuePlace,
        ReleaseRequest, Released, Renewal, RenewalOutcome, Renewed, StoredLock, TakenBy,
    },
};

/// A waiter that has been silent for longer than this may be dead.
const LONGEST_SILENCE: Duration = Duration::from_millis(50);
/// When a waiter asks again that keeps others out. It asks sooner by itself.
const PROBE: Duration = Duration::from_secs(20);
/// The number of waiters and of holders that an inspection shows.
const MOST_SHOWN: usize = 100;
/// The number of waiters that one release lets in, and of holders that one waiter notifies.
const MOST_LET_IN: usize = 64;
const MOST_NOTIFIED: usize = 256;
/// The number of locks from which expired ones are swept.
const SWEEP_FROM: usize = 64;

/// The locks of a store, its wait queues, and the clients that it notifies.
#[derive(Clone, Default)]
pub struct State<F> {
    /// The source of new fences.
    pub fences: F,
    /// The locks that have a holder, or had one whose lease has ended since.
    pub locks: HashMap<Key, LockState>,
    /// The number of locks that the last sweep left. The next one is due at twice as many.
    swept: usize,
    /// The wait queues of the locks.
    pub queues: WaitQueues,
    /// The clients that are connected, each with what handles its notifications.
    pub clients: HashMap<Uuid, Listener>,
    /// To be delivered once the mutex is free.
    pub messages: Vec<(Listener, Notification)>,
}

/// A lock with at least one holder. All of them have the same mode, and only an exclusive one is alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The holders, in the order of their grants.
    pub holders: SmallVec<[LeaseHolder; 1]>,
    /// The fence of the last grant.
    pub fence: u64,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseHolder {
    /// Who holds it.
    pub owner: OwnerId,
    /// How many entries it has.
    pub count: u32,
    /// When its lease ends.
    pub expires: Time,
}

impl LockState {
    fn has(&self, owner: OwnerId) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// Returns whether this owner may hold the lock together with the other holders.
    fn admits(&self, owner: OwnerId) -> bool {
        let mode = self.holders.first().map(|holder| holder.owner.mode());
        match (owner.mode(), mode) {
            (_, None) | (Mode::Shared, Some(Mode::Shared)) => true,
            (Mode::Permits(most), Some(Mode::Permits(_))) => {
                self.holders.len() < usize::try_from(most).unwrap_or(usize::MAX)
            }
            _ => false,
        }
    }

    /// Returns when the last holder's lease ends.
    #[must_use]
    pub fn expires(&self) -> Time {
        let each = self.holders.iter().map(|holder| holder.expires);
        each.max().unwrap_or_default()
    }

    /// Returns when the lock may be free for this owner: a permit as soon as one lease has ended.
    fn free_at(&self, owner: OwnerId) -> Time {
        let mode = self.holders.first().map(|holder| holder.owner.mode());
        match (owner.mode(), mode) {
            (Mode::Permits(_), Some(Mode::Permits(_))) => {
                let each = self.holders.iter().map(|holder| holder.expires);
                each.min().unwrap_or_default()
            }
            _ => self.expires(),
        }
    }
}

impl<F: Fences> State<F> {
    /// Grants all locks of the request or none. Hands a lock whose lease has ended to its first waiters before.
    pub fn acquire(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let (claims, count, waits) = (&request.claims, request.count, request.waits);
        let (mut taken, mut held) = (None, Few::new());
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            self.downgrade(key, *owner, now);
            let lock = self.live(key, now);
            if count > 1 && lock.is_none() {
                return Acquired::NotOwner;
            }
            let is_held = lock.as_ref().is_some_and(|lock| lock.has(*owner));
            if lock.is_some_and(|lock| !is_held && !lock.admits(*owner)) {
                taken = Some(n);
                break;
            }
            held.push(is_held);
        }
        let was_taken = taken.is_some();
        // A lock that ended by its lease goes to its first waiters.
        let taken = taken.or_else(|| {
            let mut claims = claims.iter().zip(&held);
            claims.position(|(Claim { key, owner }, is_held)| {
                if *is_held {
                    return false;
                }
                let has_to_wait = self.hand_off(key, Some(*owner), waits, now);
                let is_exclusive = owner.mode() == Mode::Exclusive;
                if !has_to_wait && !is_exclusive && self.live(key, now).is_some() {
                    // The request takes a fence, although a later lock may be taken.
                    self.set_next_fence(key);
                }
                has_to_wait
            })
        });
        let Some(taken) = taken else {
            let lease = request.lease;
            let grant = |Claim { key, owner }: &Claim| self.grant(key, *owner, lease, count, now);
            let fences = claims.iter().map(grant).collect();
            for Claim { key, owner } in claims.iter() {
                if owner.mode() != Mode::Exclusive {
                    self.hand_off(key, None, false, now);
                }
            }
            return Acquired::Granted {
                fences,
                wanted: claims.iter().any(|claim| self.is_wanted(&claim.key)),
                sent_at: now,
            };
        };
        let Claim { key, owner } = &claims[taken];
        let lock = self.live(key, now);
        let free_at = lock.map_or(now, |lock| lock.free_at(*owner));
        if claims.len() > 1 && count == 1 {
            self.hand_off_others(claims, taken, now);
        }
        if waits {
            self.queues.join(key, *owner, now);
        }
        let first = self.queues.first(key) == Some(*owner);
        // A caller that does not wait can get the lock at its next attempt.
        let tries = !waits && count == 1;
        if was_taken && (waits && first || tries) {
            self.ask_holders(key, tries, now);
        }
        let fence = self.fences.last();
        let watched = true;
        let holder = self.live(key, now).and_then(|lock| lock.holders.first());
        let owner = holder.map(|holder| holder.owner);
        let named = owner.filter(|owner| owner.mode() == Mode::Exclusive && !owner.is_kept());
        let by = named.map_or(TakenBy::Unnamed, TakenBy::Owner);
        Acquired::Taken {
            claim: taken,
            ttl: Some(free_at.since(now)),
            queued: waits.then_some(QueuePlace { first, watched }),
            sent_at: now,
            fences: claims.iter().map(|_| fence).collect(),
            retired: false,
            by,
        }
    }

    /// Notifies the holders of a lock that another client waits for it, or `tries` once.
    fn ask_holders(&mut self, key: &Key, tries: bool, now: Time) {
        let lock = self.live(key, now);
        let holders: Vec<OwnerId> = (lock.into_iter().flat_map(|lock| &lock.holders))
            .map(|holder| holder.owner)
            // Permits are never retained.
            .filter(|owner| !owner.is_kept() && !matches!(owner.mode(), Mode::Permits(_)))
            .take(MOST_NOTIFIED)
            .collect();
        for owner in holders {
            if tries && owner.mode() == Mode::Shared {
                // Ends a retention. The calls of a holder continue to share it.
                self.ask_again(key, Some(owner), Duration::ZERO);
                continue;
            }
            let key = key.clone();
            self.notify(owner.client(), Notification::Wanted { key, owner });
        }
    }

    /// Hands off the locks that one of several claims must not keep: those that were handed to it while it
    /// waited, and free ones before the one that is taken.
    fn hand_off_others(&mut self, claims: &[Claim], taken: usize, now: Time) {
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            self.downgrade(key, *owner, now);
            let is_held = self.held_by(key, *owner, now).is_some();
            if is_held {
                self.remove(key, *owner);
            }
            if is_held || n < taken && self.live(key, now).is_none() {
                self.hand_off(key, None, false, now);
            }
        }
    }

    /// Lowers the count of an owner. Zero hands the lock to its first waiters.
    pub fn release(&mut self, release: &ReleaseRequest, now: Time) -> Released {
        let (key, owner) = (&release.key, release.owner);
        self.downgrade(key, owner, now);
        let Some(holder) = self.held_by(key, owner, now) else {
            if release.count == 0 {
                self.leave_queue(release, now);
            }
            return Released::NotHeld;
        };
        if release.count > 0 {
            holder.count = release.count;
            if owner.mode() != Mode::Exclusive {
                self.hand_off(key, None, false, now);
            }
        } else if release.min_hold.is_zero() {
            self.remove(key, owner);
            self.hand_off(key, None, false, now);
        } else {
            holder.owner = owner.kept();
            (holder.count, holder.expires) = (1, now + release.min_hold);
            self.ask_first(key, release.min_hold, now);
        }
        Released::Done
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

    /// Renews leases that have not ended. Never grants a lock. A lease of zero only asks whether the lock is held.
    pub fn renew(&mut self, renewals: &[Renewal], lease: Duration, now: Time) -> Renewed {
        let renew = |Renewal { claim, fence }: &Renewal| {
            self.downgrade(&claim.key, claim.owner, now);
            let Some(holder) = self.held_by(&claim.key, claim.owner, now) else {
                return RenewalOutcome::Lost;
            };
            if !lease.is_zero() {
                holder.expires = now + lease;
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
            Mode::Exclusive => Notification::Changed(taken),
            _ => Notification::SomeChanged(KeyFilter::new(move |key| *key == taken)),
        };
        self.notify(owner.client(), notification);
    }

    /// Gives a lock that is there the next fence. Returns that.
    fn set_next_fence(&mut self, key: &Key) -> u64 {
        let next = self.fences.next();
        if let Some(lock) = self.locks.get_mut(key) {
            lock.fence = next;
        }
        next
    }

    /// Returns the lock on `key` without the holders whose leases have ended.
    fn live(&mut self, key: &Key, now: Time) -> Option<&mut LockState> {
        let lock = self.locks.get_mut(key)?;
        lock.holders.retain(|holder| holder.expires > now);
        if lock.holders.is_empty() {
            self.locks.remove(key);
        }
        self.locks.get_mut(key)
    }

    /// Returns this owner as a holder of the lock, if it is one.
    pub fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut LeaseHolder> {
        let lock = self.live(key, now)?;
        lock.holders.iter_mut().find(|it| it.owner == owner)
    }

    /// Downgrades an exclusive lock, if the owner had it.
    fn downgrade(&mut self, key: &Key, owner: OwnerId, now: Time) {
        if let Some(former) = owner.before_downgrade()
            && let Some(holder) = self.held_by(key, former, now)
        {
            (holder.owner, holder.count) = (owner, 1);
        }
    }

    /// Removes a holder.
    fn remove(&mut self, key: &Key, owner: OwnerId) {
        if owner.mode() == Mode::Exclusive {
            // It is the only one.
            self.locks.remove(key);
        } else if let Some(lock) = self.locks.get_mut(key) {
            lock.holders.retain(|holder| holder.owner != owner);
            if lock.holders.is_empty() {
                self.locks.remove(key);
            }
        }
    }

    fn is_wanted(&self, key: &Key) -> bool {
        self.queues.first(key).is_some()
    }

    /// Grants a lock that admits the owner, or is the owner's own. Returns its fence.
    fn grant(&mut self, key: &Key, owner: OwnerId, ttl: Duration, count: u32, now: Time) -> u64 {
        let mut is_new = true;
        if let Some(lock) = self.live(key, now)
            && let Some(holder) = lock.holders.iter_mut().find(|it| it.owner == owner)
        {
            is_new = false;
            holder.count = count;
            holder.expires = holder.expires.max(now + ttl);
            if owner.mode() == Mode::Exclusive {
                return lock.fence;
            }
        }
        // Expired locks are removed, seldom enough to cost little for each new one.
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires() > now);
            self.swept = self.locks.len();
        }
        let next = self.fences.next();
        let lock = self.locks.entry(key.clone()).or_insert_with(|| LockState {
            holders: SmallVec::new(),
            fence: 0,
        });
        lock.fence = next;
        if is_new {
            lock.holders.push(LeaseHolder {
                owner,
                count,
                expires: now + ttl,
            });
        }
        lock.fence
    }

    /// Hands a lock off to the first waiters, as far as it admits them and they precede the owner that `asks`. Returns
    /// whether that owner has to wait. With `joins`, an owner joins the queue after this. Clients that are gone have left
    /// all queues.
    fn hand_off(&mut self, key: &Key, asks: Option<OwnerId>, joins: bool, now: Time) -> bool {
        let (mut granted, mut longest) = (Vec::new(), Duration::ZERO);
        let mut has_to_wait = false;
        while let Some(first) = self.queues.first(key) {
            let lock = self.live(key, now);
            let precedes = |asks: OwnerId| {
                asks != first && lock.as_ref().is_some_and(|lock| lock.admits(asks))
            };
            let keeps_off = asks.is_some_and(precedes);
            let admits = lock.is_none_or(|lock| lock.admits(first));
            if !admits || granted.len() == MOST_LET_IN {
                has_to_wait = true;
                if admits {
                    self.ask_again(key, Some(first), Duration::ZERO);
                } else if keeps_off {
                    self.ask_again(key, Some(first), PROBE);
                }
                break;
            }
            if asks == Some(first) {
                self.queues.leave(key, first);
                break;
            }
            let since = self.queues.take_first(key).map_or(now, |(_, since)| since);
            longest = longest.max(now.since(since));
            granted.push((first, self.grant(key, first, GRACE, 1, now)));
        }
        for (owner, fence) in &granted {
            let notification = Notification::Granted {
                key: key.clone(),
                owner: *owner,
                fence: *fence,
                ttl: GRACE,
                wanted: joins || self.is_wanted(key),
            };
            self.notify(owner.client(), notification);
        }
        // The waiter may be dead. The next and the last waiter retry after the grace period: the last one asked most
        // recently.
        if longest > LONGEST_SILENCE {
            self.ask_from(key, 0, GRACE);
        }
        let is_full = asks.is_some_and(|asks| {
            let lock = self.live(key, now);
            lock.is_some_and(|lock| !lock.admits(asks))
        });
        has_to_wait || is_full
    }

    /// Makes the first waiter ask again. It may be dead by then, so the second and the last waiter ask after a further grace
    /// period. Clients that are gone have left all queues.
    fn ask_first(&mut self, key: &Key, after: Duration, now: Time) {
        let Some((first, since)) = self.queues.first_since(key) else {
            return;
        };
        self.ask_again(key, Some(first), after);
        if now.since(since) + after > LONGEST_SILENCE {
            self.ask_from(key, 1, after + GRACE);
        }
    }

    /// Makes the waiter at this place, and the last one behind it, ask again.
    fn ask_from(&mut self, key: &Key, place: usize, after: Duration) {
        let mut waiters = self.queues.of(key).skip(place);
        let (next, last) = (waiters.next(), waiters.last());
        self.ask_again(key, next, after);
        self.ask_again(key, last, after);
    }

    fn ask_again(&mut self, key: &Key, owner: Option<OwnerId>, after: Duration) {
        let Some(owner) = owner else { return };
        let key = key.clone();
        self.notify(owner.client(), Notification::Retry { key, owner, after });
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

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    /// Fences that count from 1.
    #[derive(Default)]
    struct Counted(u64);

    impl Fences for Counted {
        fn next(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }

        fn last(&self) -> u64 {
            self.0
        }
    }

    fn owner(sequence: u64) -> OwnerId {
        OwnerId::new(Uuid::nil(), sequence, Mode::Exclusive)
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
            let mut state = State::<Counted>::default();
            let clients: Vec<_> = (0..5).map(Uuid::from_u128).collect();
            let asks = |n: usize| AcquireRequest {
                waits: true,
                ..request("k", OwnerId::new(clients[n], 1, Mode::Exclusive))
            };
            let now = Time::from(LEASE);
            for (n, client) in clients.iter().enumerate() {
                state.clients.insert(*client, Arc::new(|_| {}));
                state.acquire(&asks(n), now);
            }
            let release = ReleaseRequest::whole(&asks(0).claims[0]);
            state.release(&release, now + waited);
            let notified = std::mem::take(&mut state.messages).into_iter();
            let notified = notified.filter_map(|(_, notification)| {
                let Notification::Retry { owner, after, .. } = notification else {
                    return None;
                };
                Some((owner.client(), after))
            });
            let retries: Vec<_> = retries.into_iter().map(|n| (clients[n], GRACE)).collect();
            assert_eq!(notified.collect::<Vec<_>>(), retries, "after {waited:?}");
        }
    }

    #[test]
    fn a_release_lets_in_64_readers_and_the_next_one_lets_in_the_others() {
        let mut state = State::<Counted>::default();
        let asks = |n, mode| AcquireRequest {
            waits: true,
            ..request("k", OwnerId::new(Uuid::from_u128(n), 1, mode))
        };
        let (writer, now) = (asks(100, Mode::Exclusive), Time::from(LEASE));
        state.acquire(&writer, now);
        for n in 0..100 {
            state.acquire(&asks(n, Mode::Shared), now);
        }
        let key = &writer.claims[0].key;
        state.release(&ReleaseRequest::whole(&writer.claims[0]), now);
        assert_eq!(state.locks[key].holders.len(), 64);
        state.acquire(&asks(64, Mode::Shared), now);
        assert_eq!(state.locks[key].holders.len(), 100);
    }

    #[test]
    fn expired_locks_do_not_pile_up() {
        let mut state = State::<Counted>::default();
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
