//! Giving locks back on all servers.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::{Instant, sleep, timeout};

use super::{
    QuorumStore,
    ballot::Ballot,
    linger_since,
    node::{Given, Node, is_done},
    votes::Verdict,
};
use crate::{
    store::{Onward, Released, StoreError},
    wait::Backoff,
};

/// For how long a server that did not answer is tried.
const DEBT: Duration = Duration::from_secs(30);

impl QuorumStore {
    pub(super) async fn give_back(
        &self,
        given: Given,
        patience: Duration,
    ) -> Result<Released, StoreError> {
        let mut ballot = self.ballot();
        for node in &*self.nodes {
            ballot.ask(node.number, node.release(given.clone()));
        }
        let verdict = decided(&mut ballot, Instant::now() + patience).await;
        let answer = match verdict {
            Verdict::Yes | Verdict::Split => Ok(Released::Done(Onward::Unknown)),
            Verdict::No => Ok(not_held(&ballot)),
            Verdict::TooFew | Verdict::Open => Err(ballot.error(&self.nodes)),
        };
        // After an error, whoever asked does so again.
        self.settle(given, ballot, answer.is_ok());
        answer
    }

    /// Sees to it that every server takes the lock back, if it is `final`: a count that is lowered is
    /// set right by the next change.
    fn settle(&self, given: Given, ballot: Ballot<Released>, is_final: bool) {
        let is_final = is_final && given.count == 0;
        let failed = self.nodes.iter().filter(|node| {
            let vote = ballot.vote(node.number);
            matches!(vote, Some(Err(error)) if error.transient)
        });
        let failed: Vec<Arc<Node>> = failed.map(Arc::clone).collect();
        let mut rest = ballot.into_rest();
        if !is_final {
            return self.follow(rest);
        }
        for node in failed {
            self.stragglers.follow(Box::pin(owe(node, given.clone())));
        }
        if rest.is_empty() {
            return;
        }
        let nodes = self.nodes.clone();
        self.stragglers.follow(Box::pin(async move {
            while let Some((server, vote)) = rest.next().await {
                if vote.is_err_and(|error| error.transient) {
                    owe(Arc::clone(&nodes[server]), given.clone()).await;
                }
            }
        }));
    }
}

/// Waits for the verdict, and where they differ for all that answer soon.
async fn decided(ballot: &mut Ballot<Released>, until: Instant) -> Verdict {
    let started = Instant::now();
    let mut linger = None;
    loop {
        let verdict = ballot.tally(is_done).verdict();
        if verdict != Verdict::Open {
            return verdict;
        }
        let limit = if ballot.has_majority() {
            *linger.get_or_insert_with(|| until.min(linger_since(started)))
        } else {
            until
        };
        if !ballot.next(limit).await {
            let mut tally = ballot.tally(is_done);
            tally.failed += std::mem::take(&mut tally.pending);
            return tally.verdict();
        }
    }
}

/// If others have had the lock since on one server, they may have had it on the others.
fn not_held(ballot: &Ballot<Released>) -> Released {
    let moved_on = |(_, released): (_, &Released)| *released == Released::MovedOn;
    if ballot.answers().any(moved_on) {
        Released::MovedOn
    } else {
        Released::NotHeld
    }
}

/// Gives a lock back to a server that was away.
async fn owe(node: Arc<Node>, given: Given) {
    let _ = timeout(DEBT, async {
        let mut backoff = Backoff::default();
        loop {
            if node.store.until_up().await.is_err() {
                return;
            }
            match node.release_within(&given, DEBT).await {
                Err(error) if error.transient => sleep(backoff.next()).await,
                _ => return,
            }
        }
    })
    .await;
}
