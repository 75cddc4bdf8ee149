//! Taking free locks for fresh owners, and waiting for those that are taken.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{Attempt, Refused};
use crate::{
    few::Few,
    guard::LockGuard,
    hold::Hold,
    key::Key,
    lease::{Time, valid_until},
    queue::Turn,
    release::Unsettled,
    store::{Acquired, Claim, StoreError, Watch},
    wait::{Backoff, fallback},
};

/// What is known of a lock that another has.
struct Taken {
    /// Which of the claims it is.
    claim: usize,
    ttl: Option<Duration>,
}

/// A watch on the lock that stood in the way last.
struct Watched {
    claim: usize,
    watch: Box<dyn Watch>,
}

impl Attempt<'_> {
    /// Takes all of these locks at once.
    pub(super) async fn take(&self, keys: Few<&Key>) -> Result<Few<LockGuard>, Refused> {
        let mut taken = None;
        let turns = self.turns(&keys, &mut taken).await?;
        let hold = |(key, turn): (&&Key, Turn)| {
            let owner = self.core.fresh_owner();
            Arc::new(Hold::new((*key).clone(), owner, self.request.lease, turn))
        };
        let holds: Few<_> = keys.iter().zip(turns).map(hold).collect();
        self.ask_until_granted(&keys, &holds, taken).await
    }

    /// This process's turns to ask the store about all of these keys.
    ///
    /// No turn is kept while another is waited for: it would keep others from a lock that is free.
    async fn turns(&self, keys: &[&Key], taken: &mut Option<Taken>) -> Result<Few<Turn>, Refused> {
        let mut waited_for = None;
        loop {
            match self.try_turns(keys, waited_for) {
                Ok(turns) => return Ok(turns),
                Err(busy) => {
                    *taken = Some(Taken {
                        claim: busy,
                        ttl: None,
                    });
                    waited_for = Some((busy, self.turn(keys[busy]).await?));
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
        for (claim, key) in keys.iter().enumerate() {
            let turn = match have.take_if(|(had, _)| *had == claim) {
                Some((_, turn)) => Some(turn),
                None => self.core.queues.try_turn(key),
            };
            turns.push(turn.ok_or(claim)?);
        }
        Ok(turns)
    }

    /// This process's turn to ask the store.
    async fn turn(&self, key: &Key) -> Result<Turn, Refused> {
        if self.asks_once() {
            return Err(self.taken(key, None));
        }
        let turn = timeout(self.left(), self.core.queues.turn(key)).await;
        turn.map_err(|_| self.taken(key, None))
    }

    async fn ask_until_granted(
        &self,
        keys: &[&Key],
        holds: &[Arc<Hold>],
        mut taken: Option<Taken>,
    ) -> Result<Few<LockGuard>, Refused> {
        let claims: Few<Claim> = holds.iter().map(|hold| claim_of(hold)).collect();
        let mut unsettled: Few<_> = holds
            .iter()
            .map(|hold| Unsettled::new(self.core, hold))
            .collect();
        let mut ambiguous = false;
        let mut backoff = Backoff::default();
        let mut watched: Option<Watched> = None;
        loop {
            unsettled.iter_mut().for_each(Unsettled::arm);
            let cut_short = self.left() < self.core.options.response_timeout;
            match self.ask(&claims, 1).await {
                Ok(Acquired::Granted { tokens, sent_at })
                    if valid_until(sent_at, self.request.lease) > Time::now() =>
                {
                    let guards = self.granted(holds, &tokens, sent_at)?;
                    unsettled.into_iter().for_each(Unsettled::disarm);
                    return Ok(guards);
                }
                // Granted, but the lease may have ended before the answer arrived: ask again.
                Ok(Acquired::Granted { .. } | Acquired::NotHeld) => {
                    ambiguous = true;
                    taken = None;
                    self.pause(&mut backoff, StoreError::late()).await?;
                }
                Ok(Acquired::Held { claim, ttl }) => {
                    if !ambiguous {
                        unsettled.iter_mut().for_each(Unsettled::relax);
                    }
                    let key = &claims[claim].key;
                    if !self.asks_once() {
                        self.wait_with_others(keys, holds, &mut watched, claim, ttl)
                            .await?;
                    }
                    if self.left().is_zero() {
                        return Err(self.taken(key, ttl));
                    }
                    taken = Some(Taken { claim, ttl });
                }
                Err(error) => {
                    ambiguous |= error.maybe_executed;
                    if !ambiguous {
                        unsettled.iter_mut().for_each(Unsettled::relax);
                    }
                    // The wait ended during the last request: what is known is that it was taken.
                    if cut_short
                        && error.maybe_executed
                        && let Some(Taken { claim, ttl }) = taken
                    {
                        return Err(self.taken(&claims[claim].key, ttl));
                    }
                    self.pause(&mut backoff, error).await?;
                }
            }
        }
    }

    pub(super) async fn ask(&self, claims: &[Claim], count: u32) -> Result<Acquired, StoreError> {
        let timeout = self.request_timeout();
        self.core
            .store
            .acquire(claims, self.request.lease, count, timeout)
            .await
    }

    fn granted(
        &self,
        holds: &[Arc<Hold>],
        tokens: &[u64],
        sent_at: Time,
    ) -> Result<Few<LockGuard>, Refused> {
        let terms = self.terms();
        let guard = |(hold, token): (&Arc<Hold>, &u64)| {
            hold.set_token(*token);
            let entry = hold.enter(terms, sent_at)?;
            Ok(self.guard(hold, entry, terms))
        };
        holds.iter().zip(tokens).map(guard).collect()
    }

    /// Waits until it may be worth asking again. The turns of several keys are passed on meanwhile:
    /// the others may be free.
    async fn wait_with_others(
        &self,
        keys: &[&Key],
        holds: &[Arc<Hold>],
        watched: &mut Option<Watched>,
        claim: usize,
        ttl: Option<Duration>,
    ) -> Result<(), Refused> {
        if holds.len() == 1 {
            self.wait(watched, claim, keys[claim], ttl).await;
            return Ok(());
        }
        for hold in holds {
            hold.pass_turn();
        }
        self.wait(watched, claim, keys[claim], ttl).await;
        if self.left().is_zero() {
            return Ok(());
        }
        let turns = self.turns(keys, &mut None).await?;
        for (hold, turn) in holds.iter().zip(turns) {
            hold.take_turn(turn);
        }
        Ok(())
    }

    /// Waits until it may be worth asking again.
    async fn wait(
        &self,
        watched: &mut Option<Watched>,
        claim: usize,
        key: &Key,
        ttl: Option<Duration>,
    ) {
        match watched {
            Some(watched) if watched.claim == claim => {
                let most = fallback(ttl).min(self.left());
                let _ = timeout(most, watched.watch.woken()).await;
            }
            _ => {
                // The lock may have been released before the watch began, so ask again at once.
                let watch = Arc::clone(&self.core.store).watch(key);
                let Watched { watch, .. } = watched.insert(Watched { claim, watch });
                let _ = timeout(self.request_timeout(), watch.ready()).await;
            }
        }
    }
}

fn claim_of(hold: &Hold) -> Claim {
    Claim {
        key: hold.key.clone(),
        owner: hold.owner,
    }
}
