//! Free locks, each for an owner of its own.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::Instant;

use super::{Asker, Sent};
use crate::{
    lease::Time,
    store::{
        Claim,
        quorum::{
            QuorumStore,
            ballot::Ballot,
            line::lead,
            linger::{LONGEST, Linger},
            node::Wanted,
            votes::majority,
        },
    },
};

/// A lock that a majority granted.
pub(in crate::store::quorum) struct Granted {
    pub(in crate::store::quorum) token: u64,
    pub(in crate::store::quorum) sent_at: Time,
}

/// Who waits for one lock of several, and which it is.
type Numbered = (usize, Asker<(Claim, Duration), Granted>);

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

fn is_refused(ballot: &Ballot<Vec<u64>>, lead: usize, lock: usize) -> bool {
    matches!(ballot.vote(lead), Some(Ok(tokens)) if tokens[lock] == 0)
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
        // The lead knows who comes first.
        if !self
            .heard(&mut ballot, &askers, |server| server == lead)
            .await
        {
            return;
        }
        let mut granted = vec![0; claims.len()];
        let askers = askers.into_iter().enumerate().collect();
        let askers = self.grant(&ballot, (lead, sent_at), askers, &mut granted);
        // Where tokens differ, another may have the highest too. Nobody else waits for that.
        let mut linger = Linger::new(Instant::now() + LONGEST);
        let is_open = |ballot: &Ballot<Vec<u64>>, n: usize| {
            let pending = ballot.pending().count();
            !is_refused(ballot, lead, n) && highest(ballot, n).is_open(pending, self.nodes.len())
        };
        while askers.iter().any(|(n, _)| is_open(&ballot, *n)) && ballot.next(linger.over()).await {
        }
        self.grant(&ballot, (lead, sent_at), askers, &mut granted);
        self.raise_lower(&claims, granted, ballot);
    }

    /// Tells those whose locks a majority granted, unless the lead refused; answers the others.
    fn grant(
        &self,
        ballot: &Ballot<Vec<u64>>,
        (lead, sent_at): (usize, Time),
        askers: Vec<Numbered>,
        granted: &mut [u64],
    ) -> Vec<Numbered> {
        let mut others = Vec::new();
        for (n, asker) in askers {
            let is_refused = is_refused(ballot, lead, n);
            let Highest { token, servers } = highest(ballot, n);
            if token > 0 && servers >= majority(self.nodes.len()) && !is_refused {
                granted[n] = token;
                let _ = asker.answer.send(Granted { token, sent_at });
            } else {
                others.push((n, asker));
            }
        }
        others
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
