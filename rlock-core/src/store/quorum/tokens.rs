//! Fencing tokens that grow across any majority. Each server counts its own; the highest of a majority
//! is the lock's, and before it is used a majority knows it. So whichever majority grants the lock next,
//! one of its servers counts on from there.

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use super::{
    QuorumStore,
    ballot::{Asked, Ballot},
    errors::no_majority,
    linger,
    node::Wanted,
    votes::majority,
};
use crate::{
    few::Few,
    store::{Acquired, StoreError},
};

/// What servers that granted locks say of their tokens.
pub(super) struct Tokens {
    /// For each lock.
    pub(super) highest: Few<u64>,
    /// The servers that have these.
    agree: usize,
    /// The servers that have lower ones.
    lower: Vec<usize>,
}

impl Tokens {
    pub(super) fn of(ballot: &Ballot<Acquired>, locks: usize) -> Self {
        let granted = || {
            ballot
                .answers()
                .filter_map(|(server, answer)| match answer {
                    Acquired::Granted { tokens, .. } => Some((server, tokens)),
                    _ => None,
                })
        };
        let highest = (0..locks).map(|lock| {
            let tokens = granted().filter_map(|(_, tokens)| tokens.get(lock).copied());
            tokens.max().unwrap_or(0)
        });
        let highest: Few<u64> = highest.collect();
        let lower = granted().filter(|(_, tokens)| **tokens != highest);
        let lower: Vec<usize> = lower.map(|(server, _)| server).collect();
        Self {
            agree: granted().count() - lower.len(),
            highest,
            lower,
        }
    }
}

impl QuorumStore {
    /// Has a majority know the tokens.
    pub(super) async fn agree(
        &self,
        wanted: &Wanted,
        tokens: &Tokens,
        until: Instant,
    ) -> Result<(), StoreError> {
        let raise = |server: &usize| self.nodes[*server].raise(wanted, tokens.highest.clone());
        let mut raised: FuturesUnordered<Asked<bool>> = tokens.lower.iter().map(raise).collect();
        let until = until.max(Instant::now() + linger::LONGEST);
        let (mut agree, mut failures) = (tokens.agree, Vec::new());
        while agree < majority(self.nodes.len()) {
            match timeout_at(until, raised.next()).await {
                Ok(Some((_, Ok(true)))) => agree += 1,
                Ok(Some((_, Ok(false)))) => {}
                Ok(Some((server, Err(error)))) => {
                    failures.push((self.nodes[server].address.clone(), error));
                }
                Ok(None) | Err(_) => {
                    let servers = self.nodes.len();
                    self.follow(raised);
                    return Err(StoreError {
                        // The locks were granted, whatever became of their tokens.
                        maybe_executed: true,
                        ..no_majority(servers, agree, failures)
                    });
                }
            }
        }
        self.follow(raised);
        Ok(())
    }

    /// Follows requests for locks that were granted by others. Who grants them too is told the token.
    pub(super) fn raise_late(
        &self,
        wanted: Wanted,
        tokens: &Tokens,
        mut rest: FuturesUnordered<Asked<Acquired>>,
    ) {
        if rest.is_empty() {
            return;
        }
        let (highest, nodes) = (tokens.highest.clone(), self.nodes.clone());
        self.stragglers.follow(Box::pin(async move {
            while let Some((server, vote)) = rest.next().await {
                if let Ok(Acquired::Granted { tokens, .. }) = vote
                    && tokens.iter().zip(&highest).any(|(one, most)| one < most)
                {
                    let _ = nodes[server].raise(&wanted, highest.clone()).await;
                }
            }
        }));
    }
}
