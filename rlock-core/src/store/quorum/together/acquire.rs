//! Free locks, each for an owner of its own.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::Instant;

use super::{Asker, Sent};
use crate::{
    lease::Time,
    store::{
        Claim,
        quorum::{QuorumStore, ballot::Ballot, line::lead, node::Wanted, votes::majority},
    },
};

/// A lock that a majority granted.
pub(in crate::store::quorum) struct Granted {
    pub(in crate::store::quorum) token: u64,
    pub(in crate::store::quorum) sent_at: Time,
}

/// The highest token that servers granted one of the locks with, 0 for none; and how many did.
struct Highest {
    token: u64,
    servers: usize,
}

impl Highest {
    /// Whether answers that are still to come decide.
    fn is_open(&self, pending: usize, of_all: usize) -> bool {
        let majority = majority(of_all);
        self.token > 0 && self.servers < majority && self.servers + pending >= majority
    }
}

fn highest(ballot: &Ballot<Vec<u64>>, lock: usize) -> Highest {
    let tokens = || ballot.answers().map(|(_, tokens)| tokens[lock]);
    let token = tokens().max().unwrap_or(0);
    let servers = tokens().filter(|one| *one == token).count();
    Highest { token, servers }
}

impl QuorumStore {
    /// Asks for a free lock together with others.
    pub(in crate::store::quorum) async fn take_with_others(
        &self,
        claim: &Claim,
        lease: Duration,
        until: Instant,
    ) -> Sent<Granted> {
        if !self.may_gather(until) {
            return Sent::No;
        }
        let what = (claim.clone(), lease);
        self.together
            .join(what, until, |leaving| &mut leaving.acquires)
            .await
    }

    pub(super) async fn acquire_for(&self, askers: Vec<Asker<(Claim, Duration), Granted>>) {
        let claims: Arc<[(Claim, Duration)]> =
            askers.iter().map(|asker| asker.what.clone()).collect();
        let lead = lead(&self.nodes);
        let sent_at = self.clock.now();
        let mut ballot = self.ballot();
        for node in &*self.nodes {
            ballot.ask(node.number, node.acquire_together(Arc::clone(&claims)));
        }
        // The lead knows who comes first; and where tokens differ, another may have the highest too.
        let still_wanted = |ballot: &Ballot<Vec<u64>>, server: usize| {
            let open = |n| highest(ballot, n).is_open(ballot.pending().count(), self.nodes.len());
            server == lead || (0..claims.len()).any(open)
        };
        if !self.heard(&mut ballot, &askers, still_wanted).await {
            return;
        }
        let mut granted = vec![0; claims.len()];
        for (n, asker) in askers.into_iter().enumerate() {
            let is_refused = matches!(ballot.vote(lead), Some(Ok(tokens)) if tokens[n] == 0);
            let Highest { token, servers } = highest(&ballot, n);
            if token > 0 && servers >= majority(self.nodes.len()) && !is_refused {
                granted[n] = token;
                let _ = asker.answer.send(Granted { token, sent_at });
            }
        }
        self.raise_lower(&claims, granted, ballot);
    }

    /// Has servers that granted a lock with a lower token than the majority's know that one, also those
    /// that are still to answer.
    fn raise_lower(
        &self,
        claims: &[(Claim, Duration)],
        granted: Vec<u64>,
        ballot: Ballot<Vec<u64>>,
    ) {
        let is_lower = |tokens: &[u64]| {
            tokens
                .iter()
                .zip(&granted)
                .any(|(token, most)| 0 < *token && token < most)
        };
        let lower = ballot.answers().filter(|(_, tokens)| is_lower(tokens));
        let lower: Vec<(usize, Vec<u64>)> = lower
            .map(|(server, tokens)| (server, tokens.clone()))
            .collect();
        let mut rest = ballot.into_rest();
        if lower.is_empty() && rest.is_empty() {
            return;
        }
        let wanted: Vec<Wanted> = claims
            .iter()
            .map(|(claim, lease)| Wanted {
                claims: Arc::new([claim.clone()]),
                lease: *lease,
                count: 1,
            })
            .collect();
        let nodes = Arc::clone(&self.nodes);
        self.stragglers.follow(Box::pin(async move {
            let raise = async |server: usize, tokens: Vec<u64>| {
                for ((token, most), wanted) in tokens.into_iter().zip(&granted).zip(&wanted) {
                    if 0 < token && token < *most {
                        let _ = nodes[server]
                            .raise(wanted, [*most].into_iter().collect())
                            .await;
                    }
                }
            };
            for (server, tokens) in lower {
                raise(server, tokens).await;
            }
            while let Some((server, vote)) = rest.next().await {
                if let Ok(tokens) = vote {
                    raise(server, tokens).await;
                }
            }
        }));
    }
}
