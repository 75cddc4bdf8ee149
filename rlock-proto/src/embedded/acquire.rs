//! Grants the locks of a request, or refuses all of them: decides who precedes the owner that asks.

use std::{collections::hash_map::Entry, time::Duration};

use super::{Fences, LeaseHolder, LockState, State, hand_off::retry};
use crate::{
    few::{Few, one},
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Asks, Claim, MOST_NOTIFIED, Notification, QueuePlace, TakenBy,
    },
};

impl<F: Fences> State<F> {
    /// Grants all locks of the request or none. A lock whose lease has ended first goes to its waiters. A refusal takes no lock
    /// from its owner, because the request may be a late copy.
    pub fn acquire(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        if let Some(fence) = self.acquire_free(request, now) {
            return Acquired::Granted {
                fences: one(fence),
                wanted: false,
                sent_at: now,
            };
        }
        let acquired = self.acquire_all(request, true, now);
        for Claim { key, owner } in &request.claims {
            self.compare_permits(key, *owner, now);
        }
        acquired
    }

    /// Grants all locks of the request or none, at a member of a quorum. A member hands nothing off, so waiters do not come before
    /// other owners.
    pub fn acquire_at_member(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        self.acquire_all(request, false, now)
    }

    /// Acquires one free lock without waiters for an exclusive owner: the usual case, with one look-up. Returns the fence.
    fn acquire_free(&mut self, request: &AcquireRequest, now: Time) -> Option<u64> {
        let [Claim { key, owner }] = &*request.claims else {
            return None;
        };
        if owner.mode() != LockMode::Exclusive || self.is_wanted(key) {
            return None;
        }
        self.sweep(now);
        let Entry::Vacant(place) = self.locks.entry(key.clone()) else {
            return None;
        };
        let holder = LeaseHolder::new(*owner, now + request.lease);
        let lock = LockState::new(one(holder), self.fences.next());
        Some(place.insert(lock).fence)
    }

    /// Notifies an owner's client if the holder whose lease ends first has a different number of permits.
    fn compare_permits(&mut self, key: &Key, owner: OwnerId, now: Time) {
        let LockMode::Permits { of: mine, .. } = owner.mode() else {
            return;
        };
        let holders = self.live(key, now).map(|lock| &lock.holders[..]);
        let others = holders.unwrap_or_default().iter();
        let next = others.min_by_key(|holder| holder.expires);
        if let Some(LockMode::Permits { of: theirs, .. }) = next.map(|holder| holder.owner.mode())
            && mine != theirs
        {
            let key = key.clone();
            let differ = Notification::PermitsDiffer { key, mine, theirs };
            self.notify(owner.client(), differ);
        }
    }

    fn acquire_all(&mut self, request: &AcquireRequest, hands_off: bool, now: Time) -> Acquired {
        let (claims, waits) = (&request.claims, request.waits);
        let (mut taken, mut held) = (None, Few::new());
        // Hands a lock off, and returns whether the owner that `asks` has to wait. At a member, only removes that owner from the queue.
        let serve_queue = |state: &mut Self, key: &Key, asks: Option<OwnerId>| {
            if hands_off {
                return state.hand_off(key, asks, waits && asks.is_some(), now);
            }
            if let Some(asks) = asks {
                state.queues.leave(key, asks);
            }
            false
        };
        for (n, Claim { key, owner }) in claims.iter().enumerate() {
            self.share(key, *owner, now);
            let lock = self.live(key, now);
            let is_held = lock.as_ref().is_some_and(|lock| lock.has(*owner));
            let admits = lock.is_none_or(|lock| is_held || lock.admits(owner.mode()));
            if !admits && !self.lets_in(key, *owner, None, now) {
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
                let has_to_wait = serve_queue(self, key, Some(*owner));
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
                    serve_queue(self, key, None);
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
        for Claim { key, .. } in &claims[..taken] {
            // This request does not acquire the free ones, which may have other waiters.
            if self.live(key, now).is_none() {
                serve_queue(self, key, None);
            }
        }
        if waits {
            self.queues.join(key, *owner, now);
            if was_taken && self.raises(key, *owner) {
                self.hand_off(key, None, false, now);
            }
        }
        let first = self.queues.first(key) == Some(*owner);
        // Only earlier waiters keep it out, and their clients may be gone.
        let probes = waits
            && !was_taken
            && !first
            && self.lets_in(key, *owner, None, now)
            && (self.kept_out(key, now) == Some(*owner)
                || self.queues.of(key).last() == Some(*owner));
        // A caller that does not wait can get the lock when it tries again.
        if was_taken && (first || !waits) {
            self.ask_holders(key, !waits, now);
        }
        let past_fence = |Claim { key, owner }: &Claim| {
            self.share(key, *owner, now);
            let is_held = self.held_by(key, *owner, now).is_some();
            (!is_held).then(|| self.last_fence(key))
        };
        let past_fences = claims.iter().map(past_fence).collect();
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
                asks: Asks::probing(probes),
            }),
            sent_at: now,
            past_fences,
            retired: false,
            by,
        }
    }

    /// Notifies the holders of a lock that another client waits for it, or only `tries` to get it.
    fn ask_holders(&mut self, key: &Key, tries: bool, now: Time) {
        let lock = self.live(key, now);
        let holders: Vec<OwnerId> = (lock.into_iter().flat_map(|lock| &lock.holders))
            .map(|holder| holder.owner)
            // Permits are never retained.
            .filter(|owner| !owner.is_kept() && owner.mode().permits().is_none())
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
}
