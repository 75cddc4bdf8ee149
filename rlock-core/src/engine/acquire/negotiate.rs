//! Acquires locks that the call chain is not inside of: asks the store, and waits for those that are taken.

use std::{mem::take, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{AcquireError, Attempt, LEAST_REQUEST_TIME, turns::Contended};
use crate::{
    engine::{
        entry::EntryGuard,
        ownership::{Ownership, Terms, Turn},
    },
    error::LostCause,
    few::Few,
    key::Key,
    lease::{Time, valid_until},
    store::{Acquired, Claim, Grant, SendOptions, StoreError, TokenBlock},
    wait::Backoff,
};

/// A placeholder for a grant that the reply fills in.
const PLACEHOLDER: Grant = Grant {
    block: TokenBlock::EMPTY,
    since: Time::NEVER,
    ttl: Duration::ZERO,
    wanted: false,
};

/// The reply to one request for all locks.
enum Reply {
    Granted(Few<Grant>),
    Contended(Contended),
}

impl Attempt<'_> {
    /// Acquires all of these locks, or none.
    pub(super) async fn negotiate(&self, keys: &[&Key]) -> Result<Few<EntryGuard>, AcquireError> {
        let (mut contended, mut refused) = (None, None);
        let mut turns = Few::new();
        let mut backoff = Backoff::default();
        loop {
            if turns.is_empty() {
                turns = self.turns(keys, &mut contended).await?;
            }
            let now = self.now();
            let ownerships = self.ownerships(keys, &turns, now);
            if let Some(grants) = self.all_usable(&ownerships, now) {
                self.is_present()?;
                if let Some(entries) = self.begin(take(&mut turns), &ownerships, &grants, now) {
                    return Ok(entries);
                }
                continue;
            }
            if let [ownership] = &*ownerships {
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
            let arrive: Few<bool> = ownerships
                .iter()
                .map(|ownership| ownership.grant().is_none())
                .collect();
            match self.request(&ownerships).await {
                Ok(Reply::Granted(grants)) => {
                    for ((turn, grant), arrives) in turns.iter().zip(&grants).zip(arrive) {
                        if arrives {
                            turn.arrived(grant.wanted);
                        }
                    }
                    let turns = take(&mut turns);
                    if let Some(entries) = self.begin(turns, &ownerships, &grants, self.now()) {
                        return Ok(entries);
                    }
                }
                Ok(Reply::Contended(by)) => {
                    if self.asks_once() {
                        return Err(self.taken(keys[by.at], by.ttl));
                    }
                    contended = Some(by);
                    self.call.waits();
                    if let [ownership] = &*ownerships {
                        if ownership.is_retired() && !ownership.is_queued() {
                            // The next owner gets no notification either, and asks without a pause.
                            sleep(backoff.next().min(self.left() / 2)).await;
                        }
                    } else {
                        let turns_of_all = take(&mut turns);
                        let wait = self.wait_for_one(keys, turns_of_all, &ownerships, by);
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

    /// Returns the ownerships to use: those that earlier callers left, otherwise fresh ones.
    fn ownerships(&self, keys: &[&Key], turns: &[Turn], now: Time) -> Few<Arc<Ownership>> {
        let ownership = |(key, turn): (&&Key, &Turn)| {
            turn.ownership(now, || {
                let (clock, owner) = (self.core.clock.clone(), self.core.fresh_owner());
                Ownership::new(clock, (*key).clone(), owner, self.request.options.lease)
            })
        };
        keys.iter().zip(turns).map(ownership).collect()
    }

    fn all_usable(&self, ownerships: &[Arc<Ownership>], now: Time) -> Option<Few<Grant>> {
        let usable = |ownership: &Arc<Ownership>| self.usable(ownership, now);
        ownerships.iter().map(usable).collect()
    }

    /// Returns a grant that needs no request: from a hand-off of the store, or from a local hold that has ended.
    fn usable(&self, ownership: &Ownership, now: Time) -> Option<Grant> {
        let grant = ownership.grant()?;
        // Without a watchdog, a grant for a short time is not renewed.
        let is_long_enough =
            self.request.options.watchdog || grant.ttl >= self.request.options.lease;
        (is_long_enough && grant.is_fresh(self.request.options.lease, now)).then_some(grant)
    }

    /// Asks the store for those locks that this client does not own yet.
    ///
    /// A lock that the store handed off and no hold has used is requested again with the others. If one of them is
    /// contended, the same request takes it back.
    async fn request(&self, ownerships: &[Arc<Ownership>]) -> Result<Reply, StoreError> {
        let now = self.now();
        let usable: Few<Option<Grant>> = ownerships
            .iter()
            .map(|ownership| {
                self.usable(ownership, now)
                    .filter(|_| ownership.is_passed())
            })
            .collect();
        let missing = usable
            .iter()
            .enumerate()
            .filter(|(_, grant)| grant.is_none());
        let missing: Few<usize> = missing.map(|(at, _)| at).collect();
        let asked: Few<&Arc<Ownership>> = missing.iter().map(|at| &ownerships[*at]).collect();
        let claims: Arc<[Claim]> = asked.iter().map(|ownership| ownership.claim()).collect();
        let doubtful = asked
            .iter()
            .find_map(|ownership| ownership.route_in_doubt());
        let route = doubtful.unwrap_or_else(|| self.core.store.via());
        let is_single = asked.len() == 1;
        let may_roll_back = !is_single || self.core.store.may_roll_back();
        let begin = |ownership: &&Arc<Ownership>| {
            if may_roll_back {
                ownership.set_may_roll_back(true);
            }
            ownership.begin_request(route)
        };
        let in_doubt: Few<bool> = asked.iter().map(begin).collect();
        let request = self.acquire_request(claims, 1, !self.asks_once());
        let send = SendOptions::new(route, self.request_timeout());
        let reply = self.core.store.acquire(&request, send).await;
        if is_single {
            // The request was not cancelled, so its reply reports whether a grant is still being rolled back.
            asked[0].set_may_roll_back(false);
        }
        let is_known = match &reply {
            Ok(Acquired::Granted { .. } | Acquired::Held { .. }) => true,
            Ok(Acquired::NotHeld) => false,
            Err(error) => !error.maybe_executed,
        };
        for (ownership, in_doubt) in asked.iter().zip(in_doubt) {
            if is_known && !in_doubt {
                ownership.all_replied();
            }
        }
        match reply? {
            Acquired::Granted {
                tokens,
                wanted,
                sent_at,
            } => {
                let mut grants: Few<Grant> = usable
                    .into_iter()
                    .map(|grant| grant.unwrap_or(PLACEHOLDER))
                    .collect();
                let mut are_new = true;
                for ((at, ownership), token) in missing.iter().zip(&asked).zip(tokens) {
                    let grant = Grant {
                        block: TokenBlock::granted(token),
                        since: sent_at,
                        ttl: self.request.options.lease,
                        wanted,
                    };
                    are_new &= ownership.granted(grant);
                    grants[*at] = grant;
                }
                // A lease may have ended before the reply arrived.
                let is_late = |grant: &Grant| valid_until(grant.since, grant.ttl) <= self.now();
                if !are_new || grants.iter().any(is_late) {
                    return Err(StoreError::late());
                }
                Ok(Reply::Granted(grants))
            }
            Acquired::Held {
                claim,
                ttl,
                queued,
                sent_at,
                fences,
                retired,
            } => {
                for ((at, ownership), fence) in asked.iter().enumerate().zip(fences) {
                    if ownership.is_passed() {
                        // It was lost, and an owner is granted a lock once.
                        self.core.watchdog.lose(ownership, LostCause::Removed);
                    }
                    ownership.note_fence(fence);
                    if at != claim || self.asks_once() {
                        ownership.not_granted(sent_at);
                    } else {
                        ownership.refused(sent_at, ttl, queued);
                    }
                    if retired {
                        ownership.retire();
                    }
                }
                let at = missing.get(claim).copied().unwrap_or(0);
                Ok(Reply::Contended(Contended { at, ttl }))
            }
            Acquired::NotHeld => Err(StoreError::late()),
        }
    }

    /// Begins the holds. Returns `None` if one of the ownerships was lost meanwhile.
    fn begin(
        &self,
        turns: Few<Turn>,
        ownerships: &[Arc<Ownership>],
        grants: &[Grant],
        now: Time,
    ) -> Option<Few<EntryGuard>> {
        let terms = Terms::new(now, &self.request.options);
        let trace_id = self.core.options.trace_id.as_ref();
        let trace_id = trace_id.and_then(|current| (current.0)());
        let holds = ownerships.iter().zip(grants).zip(turns);
        let begin = |((ownership, grant), turn): ((&Arc<Ownership>, &Grant), Turn)| {
            let entered = ownership.begin(terms, *grant, turn)?;
            if trace_id.is_some() {
                ownership.set_trace_id(trace_id.clone());
            }
            // First: a subscriber may panic.
            let entry = EntryGuard::new(self.client, ownership, entered, terms, now);
            self.call.holds(terms, ownership);
            Some(entry)
        };
        holds.map(begin).collect()
    }
}
