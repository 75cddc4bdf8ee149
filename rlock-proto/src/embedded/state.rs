//! The locks of an embedded store. Each operation follows the rules of the Lua scripts in `store/redis/scripts`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use smallvec::SmallVec;
use uuid::Uuid;

use super::{Fences, hand_off::retry, wait_queues::WaitQueues};
use crate::{
    few::Few,
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Claim, DowngradeRequest, KeyFilter, Listener,
        MOST_NOTIFIED, MOST_SHOWN, Notification, QueuePlace, ReleaseRequest, Renewal,
        RenewalOutcome, Renewed, SetCountRequest, StoredLock, TakenBy,
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
    pub locks: HashMap<Key, LockState>,
    /// The owner whose lock was released last, for each key, until a time. Only members of a quorum remember it.
    pub(super) released: HashMap<Key, (OwnerId, Time)>,
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
    pub(super) fn new() -> Self {
        Self {
            holders: SmallVec::new(),
            fence: 0,
        }
    }

    pub(super) fn has(&self, owner: OwnerId) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// Returns whether this owner may hold the lock together with the other holders.
    pub(super) fn admits(&self, owner: OwnerId) -> bool {
        let mode = self.holders.first().map(|holder| holder.owner.mode());
        match (owner.mode(), mode) {
            (_, None) | (LockMode::Shared, Some(LockMode::Shared)) => true,
            (LockMode::Permits(most), Some(LockMode::Permits(_))) => {
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
            (LockMode::Permits(_), Some(LockMode::Permits(_))) => {
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
        let acquired = self.acquire_all(request, now);
        for Claim { key, owner } in &request.claims {
            self.compare_permits(key, *owner, now);
        }
        acquired
    }

    /// Notifies an owner's client if the holder whose lease ends first has a different number of permits.
    fn compare_permits(&mut self, key: &Key, owner: OwnerId, now: Time) {
        let LockMode::Permits(mine) = owner.mode() else {
            return;
        };
        let holders = self.live(key, now).map(|lock| &lock.holders[..]);
        let others = holders.unwrap_or_default().iter();
        let next = others.min_by_key(|holder| holder.expires);
        if let Some(LockMode::Permits(theirs)) = next.map(|holder| holder.owner.mode())
            && mine != theirs
        {
            let key = key.clone();
            let differ = Notification::PermitsDiffer { key, mine, theirs };
            self.notify(owner.client(), differ);
        }
    }

    fn acquire_all(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let (claims, waits) = (&request.claims, request.waits);
        let (mut taken, mut held) = (None, Few::new());
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            self.share(key, *owner, now);
            let lock = self.live(key, now);
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
                let is_exclusive = owner.mode() == LockMode::Exclusive;
                if !has_to_wait && !is_exclusive && self.live(key, now).is_some() {
                    // The request takes a fence, although a later lock may be taken.
                    self.set_next_fence(key);
                }
                has_to_wait
            })
        });
        let Some(taken) = taken else {
            let lease = request.lease;
            let grant = |Claim { key, owner }: &Claim| self.grant(key, *owner, lease, now);
            let fences = claims.iter().map(grant).collect();
            for Claim { key, owner } in claims {
                if owner.mode() != LockMode::Exclusive {
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
        if claims.len() > 1 {
            self.hand_off_others(claims, taken, now);
        }
        if waits {
            self.queues.join(key, *owner, now);
        }
        let first = self.queues.first(key) == Some(*owner);
        // Only earlier waiters keep it out, and their clients may be gone.
        let probes = waits
            && !was_taken
            && !first
            && self.admits(key, *owner, now)
            && (self.kept_out(key, now) == Some(*owner)
                || self.queues.of(key).last() == Some(*owner));
        // A caller that does not wait can get the lock at its next attempt.
        if was_taken && (first || !waits) {
            self.ask_holders(key, !waits, now);
        }
        let fences = claims.iter().map(|claim| self.last_fence(&claim.key));
        let fences = fences.collect();
        let watched = true;
        let holder = self.live(key, now).and_then(|lock| lock.holders.first());
        let owner = holder.map(|holder| holder.owner);
        let named = owner.filter(|owner| owner.mode() == LockMode::Exclusive && !owner.is_kept());
        let by = named.map_or(TakenBy::Unnamed, TakenBy::Owner);
        Acquired::Taken {
            claim: taken,
            ttl: Some(free_at.since(now)),
            queued: waits.then_some(QueuePlace {
                first,
                watched,
                probes,
            }),
            sent_at: now,
            fences,
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
            .filter(|owner| !owner.is_kept() && !matches!(owner.mode(), LockMode::Permits(_)))
            .take(MOST_NOTIFIED)
            .collect();
        for owner in holders {
            if tries && owner.mode() == LockMode::Shared {
                // Ends a retention. The calls of a holder continue to share it.
                self.notify(owner.client(), retry(key, owner, Duration::ZERO));
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
            self.share(key, *owner, now);
            let is_held = self.held_by(key, *owner, now).is_some();
            if is_held {
                self.remove(key, *owner);
            }
            if is_held || n < taken && self.live(key, now).is_none() {
                self.hand_off(key, None, false, now);
            }
        }
    }

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
        let Some(holder) = self.held_by(key, owner, now) else {
            self.leave_queue(release, now);
            return Applied::NotHeld;
        };
        if release.min_hold.is_zero() {
            self.remove(key, owner);
            self.hand_off(key, None, false, now);
        } else {
            holder.owner = owner.kept();
            (holder.count, holder.expires) = (1, now + release.min_hold);
            self.ask_first(key, release.min_hold, now);
        }
        Applied::Done
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
        let renew = |Renewal { claim, fence, .. }: &Renewal| {
            self.share(&claim.key, claim.owner, now);
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
            LockMode::Exclusive => Notification::Changed(taken),
            _ => Notification::SomeChanged(KeyFilter::One(taken)),
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

    /// Returns the last fence of a lock, or a larger one that its next fence exceeds.
    fn last_fence(&self, key: &Key) -> u64 {
        let lock = self.locks.get(key);
        lock.map_or_else(|| self.fences.last(), |lock| lock.fence)
    }

    /// Returns the lock on `key` without the holders whose leases have ended.
    pub(super) fn live(&mut self, key: &Key, now: Time) -> Option<&mut LockState> {
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

    /// Makes an exclusive lock a shared one, if the owner had it.
    pub(super) fn share(&mut self, key: &Key, owner: OwnerId, now: Time) {
        if let Some(former) = owner.before_downgrade()
            && let Some(holder) = self.held_by(key, former, now)
        {
            (holder.owner, holder.count) = (owner, 1);
        }
    }

    /// Removes a holder.
    pub(super) fn remove(&mut self, key: &Key, owner: OwnerId) {
        if owner.mode() == LockMode::Exclusive {
            // It is the only one.
            self.locks.remove(key);
        } else if let Some(lock) = self.locks.get_mut(key) {
            lock.holders.retain(|holder| holder.owner != owner);
            if lock.holders.is_empty() {
                self.locks.remove(key);
            }
        }
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
        // Expired locks are removed, seldom enough to cost little for each new one.
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires() > now);
            self.swept = self.locks.len();
        }
        let next = self.fences.next();
        let lock = self.locks.entry(key.clone()).or_insert_with(LockState::new);
        lock.fence = next;
        if is_new {
            lock.holders.push(LeaseHolder {
                owner,
                count: 1,
                expires: now + ttl,
            });
        }
        lock.fence
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
pub(super) mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    /// Fences that count from 1.
    #[derive(Default)]
    pub(in super::super) struct Counted(u64);

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
        OwnerId::new(Uuid::nil(), sequence, LockMode::Exclusive)
    }

    pub(in super::super) fn request(key: &str, owner: OwnerId) -> AcquireRequest {
        let key = Key::parse(key).expect("valid");
        AcquireRequest {
            claims: crate::few::one(Claim { key, owner }),
            lease: LEASE,
            waits: false,
        }
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
