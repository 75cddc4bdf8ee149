//! Acquires locks that the call chain is not inside of: asks the store, and waits for those that are taken.

use std::{mem::take, sync::Arc};

use tokio::time::sleep;

use super::{Attempt, LEAST_REQUEST_TIME, turns::Contended};
use crate::{
    engine::{
        entry::EntryGuard,
        ownership::{Ownership, Requests, Turn},
    },
    error::{LockError, LostCause},
    few::Few,
    key::Key,
    lease::{Time, valid_until},
    store::{Acquired, Claim, Grant, SendOptions, StoreError},
    wait::Backoff,
};

/// How often a call asks again because a change of its lock was reported. Requests of the same client over another
/// connection are reported, too.
const MOST_CONFIRMATIONS: u8 = 3;

/// One of the locks that a call acquires.
struct Acquisition {
    ownership: Arc<Ownership>,
    /// The grant that the hold begins with, if there is one.
    grant: Option<Grant>,
}

impl Acquisition {
    /// Records a grant. Returns whether it is new.
    fn granted(&mut self, grant: Grant) -> bool {
        self.grant = Some(grant);
        self.ownership.granted(grant)
    }

    /// Returns whether the lease had ended before the reply arrived.
    fn is_late(&self, now: Time) -> bool {
        self.grant
            .is_some_and(|grant| valid_until(grant.since, grant.ttl) <= now)
    }
}

impl Attempt<'_> {
    /// Acquires all of these locks, or none.
    pub(super) async fn negotiate(&self, keys: &[&Key]) -> Result<Few<EntryGuard>, LockError> {
        let (mut contended, mut refused) = (None, None);
        let mut confirmations = 0_u8;
        let mut turns = Few::new();
        let mut backoff = Backoff::default();
        loop {
            if turns.is_empty() {
                turns = self.turns(keys, &mut contended).await?;
            }
            let now = self.now();
            let Some(mut locks) = self.acquisitions(keys, &turns, now) else {
                turns.clear();
                continue;
            };
            if locks.iter().all(|lock| lock.grant.is_some()) {
                if let Some(entries) = self.begin(take(&mut turns), &locks, now) {
                    return Ok(entries);
                }
                continue;
            }
            if let [Acquisition { ownership, .. }] = &*locks {
                turns[0].waits_for(ownership);
                // The grant that an earlier caller asked for may arrive.
                self.until_reported(ownership).await;
                let now = self.now();
                if ownership.is_unusable(now) || self.usable(ownership, now).is_some() {
                    continue;
                }
            }
            if let Some(Contended { at, ttl }) = contended
                && self.left().is_zero()
            {
                return Err(self.taken(keys[at], ttl));
            }
            match self.request(&turns, &mut locks).await {
                // If a change was reported since the request was sent, the lock may have been lost since the grant. A hold
                // that begins nevertheless is renewed at once.
                Ok(None)
                    if confirmations < MOST_CONFIRMATIONS
                        && locks.iter().any(|lock| lock.ownership.grant().is_none()) =>
                {
                    confirmations += 1;
                }
                Ok(None) => {
                    let turns = take(&mut turns);
                    if let Some(entries) = self.begin(turns, &locks, self.now()) {
                        return Ok(entries);
                    }
                }
                Ok(Some(by)) => {
                    if self.asks_once() {
                        return Err(self.taken(keys[by.at], by.ttl));
                    }
                    contended = Some(by);
                    self.call.waits();
                    if let [Acquisition { ownership, .. }] = &*locks {
                        if ownership.requests(|requests| requests.is_retired()) {
                            // The next owner asks without a pause.
                            sleep(backoff.next().min(self.left() / 2)).await;
                        }
                    } else {
                        let (turns_of_all, lock) = (take(&mut turns), &locks[by.at]);
                        let wait = self.wait_for_one(keys, turns_of_all, &lock.ownership, by);
                        turns = Box::pin(wait).await?;
                    }
                }
                Err(error) => {
                    // The wait ended during the last request, so an earlier reply is more precise.
                    if self.left() <= LEAST_REQUEST_TIME && error.maybe_executed {
                        return Err(match contended {
                            Some(Contended { at, ttl }) => self.taken(keys[at], ttl),
                            None => self.failed(refused.unwrap_or(error)),
                        });
                    }
                    if !error.maybe_executed {
                        refused = Some(error.clone());
                    }
                    Box::pin(self.pause(&mut backoff, error)).await?;
                }
            }
        }
    }

    /// Returns the ownerships to use. Returns `None` if a turn was taken back.
    fn acquisitions(&self, keys: &[&Key], turns: &[Turn], now: Time) -> Option<Few<Acquisition>> {
        let locks = keys.iter().zip(turns);
        locks
            .map(|(key, turn)| self.acquisition(key, turn, now))
            .collect()
    }

    /// Returns the ownership to use: the one that an earlier caller left, otherwise a fresh one.
    fn acquisition(&self, key: &Key, turn: &Turn, now: Time) -> Option<Acquisition> {
        let ownership = turn.ownership(now, || {
            let (clock, owner) = (self.core.clock.clone(), self.core.fresh_owner());
            Ownership::new(clock, key.clone(), owner, self.request.options.lease)
        })?;
        let grant = self.usable(&ownership, now);
        Some(Acquisition { ownership, grant })
    }

    /// Returns a grant that needs no request: from a hand-off of the store, or from a local hold that has ended.
    fn usable(&self, ownership: &Ownership, now: Time) -> Option<Grant> {
        let grant = ownership.grant()?;
        // Without a watchdog, a grant for a short time is not renewed.
        let is_long_enough =
            self.request.options.watchdog || grant.ttl >= self.request.options.lease;
        (is_long_enough && grant.is_fresh(self.request.options.lease, now)).then_some(grant)
    }

    /// Asks the store for those locks that this client does not own yet. Returns the one that another owner has, if any.
    ///
    /// A lock that the store handed off and no hold has used is requested again with the others. If one of them is
    /// contended, the same request takes it back.
    async fn request(
        &self,
        turns: &[Turn],
        locks: &mut [Acquisition],
    ) -> Result<Option<Contended>, StoreError> {
        let asked: Few<(usize, &mut Acquisition)> = locks
            .iter_mut()
            .enumerate()
            .filter(|(_, lock)| lock.grant.is_none() || !lock.ownership.is_passed())
            .collect();
        let ownerships = || asked.iter().map(|(_, lock)| &lock.ownership);
        let claims: Arc<[Claim]> = ownerships().map(|own| own.claim()).collect();
        let may_roll_back = asked.len() > 1 || self.core.store.may_roll_back();
        let mut in_doubt: Few<bool> = Few::new();
        let mut arriving: Few<&Turn> = Few::new();
        for (at, Acquisition { ownership, .. }) in &asked {
            if ownership.grant().is_none() {
                arriving.push(&turns[*at]);
            }
            in_doubt.push(ownership.requests(|requests| {
                if may_roll_back {
                    requests.set_may_roll_back(true);
                }
                requests.begin(self.now())
            }));
        }
        let request = self.acquire_request(claims, 1, !self.asks_once());
        let (timeout, lease) = (self.request_timeout(), request.lease);
        for turn in turns {
            turn.asks(timeout, lease);
        }
        let send = SendOptions::new(timeout).in_doubt(in_doubt.contains(&true));
        let reply = self.core.store.acquire(&request, send).await;
        for ownership in ownerships().filter(|own| own.is_ended()) {
            // The turn was taken back, and the release may have been executed before this request.
            self.core.releases().settle(Arc::clone(ownership));
        }
        if let [(_, Acquisition { ownership, .. })] = &*asked {
            // The request was not cancelled, so its reply reports whether a grant is still being rolled back.
            ownership.requests(|requests| requests.set_may_roll_back(false));
        }
        if reply.is_err() {
            // The store may have taken back what this client already owned, as a quorum does.
            ownerships().for_each(|own| own.doubt());
        }
        let is_known = match &reply {
            Ok(reply) => !matches!(reply, Acquired::NotOwner),
            Err(error) => !error.maybe_executed,
        };
        for ((_, lock), in_doubt) in asked.iter().zip(in_doubt) {
            if is_known && !in_doubt {
                lock.ownership.requests(Requests::all_replied);
            }
        }
        match reply? {
            Acquired::Granted {
                fences,
                wanted,
                sent_at,
            } => {
                let mut are_new = true;
                for ((_, lock), fence) in asked.into_iter().zip(fences) {
                    let grant = Grant {
                        fence,
                        since: sent_at,
                        ttl: self.request.options.lease,
                        wanted,
                    };
                    are_new &= lock.granted(grant);
                }
                let now = self.now();
                if !are_new || locks.iter().any(|lock| lock.is_late(now)) {
                    return Err(StoreError::late());
                }
                arriving.iter().for_each(|turn| turn.arrived(wanted));
                Ok(None)
            }
            Acquired::Taken {
                claim,
                ttl,
                queued,
                sent_at,
                fences,
                retired,
            } => {
                for (n, ((_, lock), fence)) in asked.iter().zip(fences).enumerate() {
                    self.refused(&lock.ownership, |requests| {
                        requests.note_fence(fence);
                        if n != claim || self.asks_once() {
                            requests.not_granted(sent_at);
                        } else {
                            requests.refused(sent_at, ttl, queued, self.now());
                        }
                        if retired {
                            requests.retire();
                        }
                    });
                }
                let at = asked.get(claim).map_or(0, |(at, _)| *at);
                Ok(Some(Contended { at, ttl }))
            }
            Acquired::NotOwner => Err(StoreError::late()),
        }
    }

    /// Applies a refusal to an ownership.
    fn refused(&self, ownership: &Arc<Ownership>, apply: impl FnOnce(&mut Requests)) {
        if ownership.is_passed() {
            // It was lost, and an owner is granted a lock once.
            self.core.watchdog.lose(ownership, LostCause::Removed);
        }
        ownership.requests(apply);
    }

    /// Begins the holds. Returns `None` if one of the ownerships was lost meanwhile.
    fn begin(&self, turns: Few<Turn>, locks: &[Acquisition], now: Time) -> Option<Few<EntryGuard>> {
        let options = &self.request.options;
        let trace_id = self.core.options.trace_id.as_ref();
        let trace_id = trace_id.and_then(|current| (current.0)());
        let begin = |(Acquisition { ownership, grant }, turn): (&Acquisition, Turn)| {
            let entered = ownership.begin(options, (*grant)?, turn, now)?;
            if trace_id.is_some() {
                ownership.set_trace_id(trace_id.clone());
            }
            // Before the hold is reported: if a subscriber panics, this guard releases the lock.
            let entry = EntryGuard::new(self.client, ownership, entered, now);
            self.call.holds(ownership, now);
            Some(entry)
        };
        locks.iter().zip(turns).map(begin).collect()
    }
}
