//! Acquires locks that the call chain is not inside of: asks the store, and waits for those that are taken.

use std::{mem::take, sync::Arc};

use tokio::time::sleep;

use super::{Attempt, LEAST_REQUEST_TIME};
use crate::{
    engine::{
        ask::{Ask, Asked, Contended},
        entry::EntryGuard,
        ownership::{Ownership, Turn},
    },
    error::LockError,
    few::Few,
    key::Key,
    lease::{Time, valid_until},
    store::{Grant, SendOptions, StoreError},
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
                turns = match self.try_turns(keys, None) {
                    Ok(turns) => turns,
                    // Boxed, because most calls do not wait.
                    Err(taken) => Box::pin(self.turns(keys, (taken, None), &mut contended)).await?,
                };
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

    /// Returns the ownerships to use: those that earlier callers left, otherwise fresh ones. Returns `None` if a turn
    /// was taken back.
    fn acquisitions(&self, keys: &[&Key], turns: &[Turn], now: Time) -> Option<Few<Acquisition>> {
        let acquisition = |(key, turn): (&&Key, &Turn)| {
            let ownership = turn.ownership(now, || {
                let (clock, owner) = (self.core.clock.clone(), self.core.fresh_owner());
                Ownership::new(clock, (*key).clone(), owner, self.request.options.lease)
            })?;
            let grant = self.usable(&ownership, now);
            Some(Acquisition { ownership, grant })
        };
        keys.iter().zip(turns).map(acquisition).collect()
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
        let needs_request = |at: &usize| {
            let lock = &locks[*at];
            lock.grant.is_none() || !lock.ownership.is_passed()
        };
        let asked: Few<usize> = (0..locks.len()).filter(needs_request).collect();
        let ownerships: Few<_> = asked.iter().map(|at| &locks[*at].ownership).collect();
        let arriving = asked.iter().zip(&ownerships);
        let arriving = arriving.filter(|(_, own)| own.grant().is_none());
        let arriving: Few<&Turn> = arriving.map(|(at, _)| &turns[*at]).collect();
        let (timeout, lease) = (self.request_timeout(), self.request.options.lease);
        let ask = Ask::begin(self.core, ownerships, lease, !self.asks_once());
        for turn in turns {
            turn.asks(timeout, lease);
        }
        let send = SendOptions::new(timeout).in_doubt(ask.is_in_doubt());
        let reply = self.core.store.acquire(&ask.request, send).await;
        match ask.apply(reply)? {
            Asked::Granted(grants) => {
                let (now, wanted) = (self.now(), grants[0].wanted);
                for (at, grant) in asked.into_iter().zip(grants) {
                    locks[at].grant = Some(grant);
                }
                if locks.iter().any(|lock| lock.is_late(now)) {
                    return Err(StoreError::late());
                }
                arriving.iter().for_each(|turn| turn.arrived(wanted));
                Ok(None)
            }
            Asked::Retired => Ok(None),
            Asked::Taken(Contended { at, ttl }) => {
                let at = asked.get(at).map_or(0, |at| *at);
                Ok(Some(Contended { at, ttl }))
            }
        }
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
