//! Locks of different slots, all or none. No script reaches them all, so they are taken slot by slot, in
//! one order for everybody: nobody waits while it holds what another may want.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;

use super::{By, ClusterStore, Needs, Node, Slot};
use crate::{
    few::Few,
    key::Key,
    lease::Time,
    store::{Acquired, Answer, Claim, Release, StoreError},
};

/// The claims of each slot, by their places among all claims.
pub(super) fn by_slot(claims: &[Claim]) -> Vec<(Slot, Vec<usize>)> {
    let mut groups: Vec<(Slot, Vec<usize>)> = Vec::with_capacity(1);
    for (at, claim) in claims.iter().enumerate() {
        let slot = Slot::of(&claim.key);
        match groups.iter_mut().find(|(group, _)| *group == slot) {
            Some((_, group)) => group.push(at),
            None => groups.push((slot, vec![at])),
        }
    }
    groups.sort_unstable_by_key(|(slot, _)| *slot);
    groups
}

impl ClusterStore {
    /// Takes the locks of all groups. When one is taken by another, what was given before is given back;
    /// and what may have been given meanwhile to an owner that stood in a line is left.
    pub(super) async fn acquire_across(
        &self,
        claims: &[Claim],
        groups: &[(Slot, Vec<usize>)],
        terms: (Duration, u32, bool),
        by: By,
    ) -> Result<Acquired, StoreError> {
        let until = self.clock.now() + by.patience;
        let left = || By {
            patience: until.since(self.clock.now()),
            ..by
        };
        let mut tokens: Few<u64> = claims.iter().map(|_| 0).collect();
        let (mut first_sent, mut is_wanted): (Option<Time>, bool) = (None, false);
        for (n, (slot, group)) in groups.iter().enumerate() {
            let some: Vec<Claim> = group.iter().map(|at| claims[*at].clone()).collect();
            let answer = self.acquire_in(*slot, &some, terms, left()).await;
            match answer.map_err(|error| in_doubt(error, n > 0))? {
                Acquired::Granted {
                    tokens: some,
                    wanted,
                    sent_at,
                } => {
                    is_wanted |= wanted;
                    first_sent = first_sent.or(Some(sent_at));
                    for (at, token) in group.iter().zip(some) {
                        tokens[*at] = token;
                    }
                }
                Acquired::Held {
                    claim,
                    ttl,
                    in_line,
                    sent_at,
                    fences: some,
                    spoilt,
                } => {
                    let mut fences = self.leave_all_but(group, claims, tokens, left()).await?;
                    for (at, fence) in group.iter().zip(some) {
                        fences[*at] = fence;
                    }
                    return Ok(Acquired::Held {
                        claim: group[claim],
                        ttl,
                        in_line,
                        sent_at,
                        fences,
                        spoilt,
                    });
                }
                Acquired::NotHeld => return Ok(Acquired::NotHeld),
            }
        }
        Ok(Acquired::Granted {
            tokens,
            wanted: is_wanted,
            sent_at: first_sent.unwrap_or_else(|| self.clock.now()),
        })
    }

    /// Gives back or leaves the locks of all other groups. Answers the tokens up to which nothing that
    /// was given there is worth anything: those that were given just now, and what can be read.
    async fn leave_all_but(
        &self,
        group: &[usize],
        claims: &[Claim],
        given: Few<u64>,
        by: By,
    ) -> Result<Few<u64>, StoreError> {
        let leaving = claims.iter().zip(given).enumerate();
        let leaving = leaving.map(|(at, (claim, token))| {
            let leave: Answer<'_, u64> = Box::pin(async move {
                if group.contains(&at) {
                    return Ok(token);
                }
                let release = Release {
                    key: &claim.key,
                    owner: claim.owner,
                    token,
                    count: 0,
                    keep: Duration::ZERO,
                    next: None,
                };
                self.release(&release, by).await?;
                match token {
                    0 => self.fence(&claim.key, by).await,
                    token => Ok(token),
                }
            });
            leave
        });
        let left = try_join_all(leaving).await;
        // Whatever was not given back is the owners' still.
        left.map(Few::from_vec)
            .map_err(|error| in_doubt(error, true))
    }

    /// The last token of a lock; 0 if there was none for long.
    async fn fence(&self, key: &Key, by: By) -> Result<u64, StoreError> {
        let ask = |node: Arc<Node>, by| -> Answer<'_, u64> {
            Box::pin(async move { node.store.fence(key, by).await })
        };
        self.at_owner(Slot::of(key), Needs::Lock, by, &ask).await
    }
}

/// Some locks may have been taken, or not given back, whatever the last request did.
fn in_doubt(error: StoreError, others: bool) -> StoreError {
    StoreError {
        maybe_executed: error.maybe_executed || others,
        ..error
    }
}
