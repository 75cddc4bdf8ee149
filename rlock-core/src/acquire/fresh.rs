//! Taking locks for fresh owners, and waiting for those that are taken.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Attempt, NOTICED, Refused, enter::guard};
use crate::{
    few::Few,
    guard::LockGuard,
    hold::Hold,
    key::Key,
    lease::valid_until,
    queue::{Turn, WaiterTerms},
    store::{Acquired, Claim, Grant, Route, StoreError, TokenBlock},
    wait::Backoff,
};

/// Who may not be told of a lock where it waits asks again after this long.
const UNHEARD: Duration = Duration::from_secs(1);

/// What is known of a lock that another has.
#[derive(Clone, Copy)]
struct Taken {
    /// Which of the keys it is.
    at: usize,
    ttl: Option<Duration>,
}

/// The answer to one request for all locks.
enum Answer {
    Granted(Few<Grant>),
    Taken(Taken),
}

impl Attempt<'_> {
    /// Takes all of these locks at once.
    pub(super) async fn take(&self, keys: Few<&Key>) -> Result<Few<LockGuard>, Refused> {
        let (mut taken, mut refused) = (None, None);
        let mut turns = self.turns(&keys, None, &mut taken).await?;
        let mut backoff = Backoff::default();
        loop {
            let holds = self.asked(&keys, &turns);
            if let [hold] = &*holds {
                // What somebody before asked for may have come, or be on its way.
                hold.asking.wait(self.deadline).await;
                if hold.is_over() {
                    // An owner has one ownership only.
                    hold.asking.spoil();
                    continue;
                }
                if let Some(grant) = hold.asking.grant().filter(|grant| self.may_use(grant)) {
                    let is_present = self.core.store.is_present();
                    is_present.map_err(|error| self.failed(error))?;
                    return Ok(self.granted(turns, &holds, &[grant], false));
                }
            }
            if let Some(taken) = taken
                && self.left().is_zero()
            {
                return Err(self.taken(keys[taken.at], taken.ttl));
            }
            let arrives = holds.iter().any(|hold| hold.asking.grant().is_none());
            match self.ask_for(&holds).await {
                Ok(Answer::Granted(grants)) => {
                    return Ok(self.granted(turns, &holds, &grants, arrives));
                }
                Ok(Answer::Taken(by)) => {
                    if self.asks_once() {
                        return Err(self.taken(keys[by.at], by.ttl));
                    }
                    taken = Some(by);
                    if let [hold] = &*holds
                        && hold.asking.is_spoilt()
                        && !hold.asking.is_in_line()
                    {
                        // The next owner is told nothing either, and does not wait before it asks.
                        sleep(backoff.next().min(self.left() / 2)).await;
                    }
                    if holds.len() > 1 {
                        turns = self.wait_with_others(&keys, turns, &holds, by).await?;
                    }
                }
                Err(error) => {
                    // The wait ended during the last request: what is known is what was said before.
                    if self.left() <= NOTICED && error.maybe_executed {
                        if let Some(taken) = taken {
                            return Err(self.taken(keys[taken.at], taken.ttl));
                        }
                        return Err(self.failed(refused.unwrap_or(error)));
                    }
                    if !error.maybe_executed {
                        refused = Some(error.clone());
                    }
                    self.pause(&mut backoff, error).await?;
                }
            }
        }
    }

    /// This process's turns to deal with the store about all of these keys.
    ///
    /// No turn is kept while another is waited for: it would keep others from a lock that is free.
    async fn turns(
        &self,
        keys: &[&Key],
        mut have: Option<(usize, Turn)>,
        taken: &mut Option<Taken>,
    ) -> Result<Few<Turn>, Refused> {
        loop {
            match self.try_turns(keys, have) {
                Ok(turns) => return Ok(turns),
                Err(busy) => {
                    *taken = Some(Taken {
                        at: busy,
                        ttl: None,
                    });
                    have = Some((busy, self.turn(keys[busy]).await?));
                }
            }
        }
    }

    /// All turns, or which of them is somebody else's.
    fn try_turns(
        &self,
        keys: &[&Key],
        mut have: Option<(usize, Turn)>,
    ) -> Result<Few<Turn>, usize> {
        let mut turns = Few::new();
        for (at, key) in keys.iter().enumerate() {
            let turn = match have.take_if(|(had, _)| *had == at) {
                Some((_, turn)) => Some(turn),
                None => self.core.queues.try_turn(key),
            };
            turns.push(turn.ok_or(at)?);
        }
        Ok(turns)
    }

    async fn turn(&self, key: &Key) -> Result<Turn, Refused> {
        if self.asks_once() {
            return Err(self.taken(key, None));
        }
        let terms = WaiterTerms {
            lease: self.request.lease,
            watchdog: self.request.watchdog,
            told_by: self.core.store.told_by(),
        };
        let turn = self.core.queues.turn(key, terms);
        timeout(self.left(), turn)
            .await
            .map_err(|_| self.taken(key, None))
    }

    /// What the store is asked for: what those who had the turns before left off, else anew.
    fn asked(&self, keys: &[&Key], turns: &[Turn]) -> Few<Arc<Hold>> {
        let store = &self.core.store;
        let hold = |(key, turn): (&&Key, &Turn)| {
            turn.ask_for(
                || store.still_told_by(),
                || {
                    let owner = self.core.fresh_owner(store.told_by());
                    let clock = self.core.clock.clone();
                    Arc::new(Hold::new(clock, (*key).clone(), owner, self.request.lease))
                },
            )
        };
        keys.iter().zip(turns).map(hold).collect()
    }

    /// Whether a lock that the store gave without being asked can be taken as it is.
    fn may_use(&self, grant: &Grant) -> bool {
        // Without a watchdog nobody renews what is given for a short while.
        grant.is_fresh(self.request.lease, self.now())
            && (self.request.watchdog || grant.ttl >= self.request.lease)
    }

    async fn ask_for(&self, holds: &[Arc<Hold>]) -> Result<Answer, StoreError> {
        let claims: Few<Claim> = holds.iter().map(|hold| claim_of(hold)).collect();
        let doubtful = holds.iter().find_map(|hold| hold.asking.route_in_doubt());
        let route = doubtful.unwrap_or_else(|| self.core.store.route());
        let is_single = holds.len() == 1;
        if !is_single || self.core.store.takes_back() {
            for hold in holds {
                hold.asking.may_be_taken_back();
            }
        }
        let in_doubt = holds.iter().map(|hold| hold.asking.begin(route));
        let in_doubt: Few<bool> = in_doubt.collect();
        let answer = self.ask(&claims, 1, !self.asks_once(), route).await;
        if is_single {
            // It was not cancelled, so the answer says what is still being taken back.
            holds[0].asking.is_not_taken_back();
        }
        let known = match &answer {
            Ok(Acquired::Granted { .. } | Acquired::Held { .. }) => true,
            Ok(Acquired::NotHeld) => false,
            Err(error) => !error.maybe_executed,
        };
        for (hold, in_doubt) in holds.iter().zip(in_doubt) {
            if known && !in_doubt {
                hold.asking.certain();
            }
        }
        match answer? {
            Acquired::Granted {
                tokens,
                wanted,
                sent_at,
            } => {
                let lease = self.request.lease;
                let grant = |token| Grant {
                    block: TokenBlock::granted(token),
                    since: sent_at,
                    ttl: lease,
                    wanted,
                };
                let grants: Few<Grant> = tokens.into_iter().map(grant).collect();
                let mut is_new = true;
                for (hold, grant) in holds.iter().zip(&grants) {
                    hold.asking.given(*grant);
                    if hold.tokens.are_before(grant.block) {
                        // The ownership was lost, and granted anew. An owner has one ownership only.
                        hold.asking.spoil();
                        is_new = false;
                    }
                }
                if !is_new {
                    return Err(StoreError::late());
                }
                if valid_until(sent_at, lease) <= self.now() {
                    // The lease may have ended before the answer arrived.
                    return Err(StoreError::late());
                }
                Ok(Answer::Granted(grants))
            }
            Acquired::Held {
                claim,
                ttl,
                in_line,
                sent_at,
                fences,
                spoilt,
            } => {
                for ((at, hold), fence) in holds.iter().enumerate().zip(fences) {
                    hold.asking.is_past(fence);
                    if at != claim || self.asks_once() {
                        hold.asking.not_given(sent_at);
                    } else if let Some(place) = in_line {
                        hold.asking.in_line(sent_at, ttl, place);
                        if hold.owner.is_near() && self.core.store.told_by() == Route::Home {
                            hold.asking.look_after(UNHEARD);
                        }
                    } else {
                        hold.asking.refused(sent_at, ttl);
                    }
                    if spoilt {
                        hold.asking.spoil();
                    }
                }
                Ok(Answer::Taken(Taken { at: claim, ttl }))
            }
            Acquired::NotHeld => Err(StoreError::late()),
        }
    }

    pub(super) async fn ask(
        &self,
        claims: &[Claim],
        count: u32,
        waits: bool,
        route: Route,
    ) -> Result<Acquired, StoreError> {
        let by = (route, self.request_timeout());
        self.core
            .store
            .acquire(claims, self.request.lease, count, waits, by)
            .await
    }

    fn granted(
        &self,
        turns: Few<Turn>,
        holds: &[Arc<Hold>],
        grants: &[Grant],
        arrived: bool,
    ) -> Few<LockGuard> {
        let terms = self.terms();
        let begin = |((turn, hold), grant): ((Turn, &Arc<Hold>), &Grant)| {
            turn.served(arrived, grant.wanted);
            let entry = hold.begin(terms, *grant, turn);
            let guard = guard(self.client, hold, entry, terms);
            if hold.tokens.are_void() {
                // The store said so a moment ago.
                self.core.watchdog.suspect(&hold.key);
            }
            guard
        };
        turns
            .into_iter()
            .zip(holds)
            .zip(grants)
            .map(begin)
            .collect()
    }

    /// Waits for the lock of several that stood in the way. The turns of the others are passed on
    /// meanwhile: they may be free.
    async fn wait_with_others(
        &self,
        keys: &[&Key],
        mut turns: Few<Turn>,
        holds: &[Arc<Hold>],
        taken: Taken,
    ) -> Result<Few<Turn>, Refused> {
        let turn = turns.swap_remove(taken.at);
        drop(turns);
        holds[taken.at].asking.wait(self.deadline).await;
        if self.left().is_zero() {
            return Err(self.taken(keys[taken.at], taken.ttl));
        }
        let have = Some((taken.at, turn));
        self.turns(keys, have, &mut Some(taken)).await
    }
}

pub(super) fn claim_of(hold: &Hold) -> Claim {
    Claim {
        key: hold.key.clone(),
        owner: hold.owner,
    }
}
