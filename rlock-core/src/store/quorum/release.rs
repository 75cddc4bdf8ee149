//! Giving locks back on all servers.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, timeout};

use super::{
    QuorumStore,
    ballot::{Asked, Ballot, Vote},
    line::lead,
    linger::Linger,
    node::{Given, Node, is_done},
    votes::Verdict,
};
use crate::{
    store::{Grant, Onward, Released, StoreError},
    wait::Backoff,
};

/// For how long a server that did not answer is tried.
const DEBT: Duration = Duration::from_secs(30);

/// What a server is still to take back.
pub(super) type Debt = (Arc<Node>, Given);

impl QuorumStore {
    pub(super) async fn give_back(
        &self,
        mut given: Given,
        patience: Duration,
    ) -> Result<Released, StoreError> {
        let until = Instant::now() + patience;
        let mut ballot = self.ballot();
        let lead = lead(&self.nodes);
        let next = given.next.take();
        for node in &*self.nodes {
            // The others have no line.
            let next = next.filter(|_| node.number == lead);
            let given = Given {
                next,
                ..given.clone()
            };
            ballot.ask(node.number, node.release(given));
        }
        let waits_for = next.map(|_| lead);
        let verdict = self.decided_release(&mut ballot, waits_for, until).await;
        let answer = match verdict {
            Verdict::Yes | Verdict::Split => Ok(Released::Done(self.went_on(&ballot, lead))),
            Verdict::No => Ok(not_held(&ballot)),
            Verdict::TooFew | Verdict::Open => Err(ballot.error(&self.nodes)),
        };
        // After an error, whoever asked does so again.
        self.settle(given, ballot, answer.is_ok());
        answer
    }

    /// What became of the next in the line of this process: in line at the lead; or first there, for no
    /// time that it could use, so that it asks all; or it asks because nothing is known.
    fn went_on(&self, ballot: &Ballot<Released>, lead: usize) -> Onward {
        match ballot.vote(lead) {
            Some(Ok(Released::Done(in_line @ Onward::InLine { .. }))) => {
                self.stood.notify_one();
                *in_line
            }
            Some(Ok(Released::Done(Onward::Granted(grant)))) => Onward::Granted(Grant {
                ttl: Duration::ZERO,
                ..*grant
            }),
            _ => Onward::Unknown,
        }
    }

    /// Waits for the verdict, and where they differ for all that answer soon; then for the server that has
    /// something to say of the next in line.
    async fn decided_release(
        &self,
        ballot: &mut Ballot<Released>,
        waits_for: Option<usize>,
        until: Instant,
    ) -> Verdict {
        let mut linger = Linger::new(until);
        loop {
            let verdict = ballot.tally(is_done).verdict();
            let is_awaited = waits_for.is_some_and(|server| {
                ballot.vote(server).is_none() && !self.nodes[server].health.is_failing()
            });
            if verdict != Verdict::Open && !is_awaited {
                return verdict;
            }
            let limit = if ballot.has_majority() {
                linger.over()
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

    /// Sees to it that every server takes the lock back, if it is `final`: a count that is lowered is
    /// set right by the next change.
    fn settle(&self, given: Given, ballot: Ballot<Released>, is_final: bool) {
        let is_final = is_final && given.count == 0;
        let failed = self.nodes.iter().filter(|node| {
            let vote = ballot.vote(node.number);
            matches!(vote, Some(Err(error)) if error.transient)
        });
        let failed: Vec<Debt> = failed
            .map(|node| (Arc::clone(node), given.clone()))
            .collect();
        let rest = ballot.into_rest();
        if !is_final {
            return self.follow(rest);
        }
        let nodes = self.nodes.clone();
        self.follow_debts(failed, rest, move |server, vote| {
            let failed = vote.is_err_and(|error| error.transient);
            let debt = failed.then(|| (Arc::clone(&nodes[server]), given.clone()));
            debt.into_iter().collect()
        });
    }

    /// Has servers take locks back, also those that answer late with what they still have. One that stays
    /// away holds up no other.
    pub(super) fn follow_debts<T: Send + 'static>(
        &self,
        debts: Vec<Debt>,
        mut rest: FuturesUnordered<Asked<T>>,
        owed: impl Fn(usize, Vote<T>) -> Vec<Debt> + Send + 'static,
    ) {
        if debts.is_empty() && rest.is_empty() {
            return;
        }
        self.stragglers.follow(Box::pin(async move {
            let mut debts: FuturesUnordered<_> = debts.into_iter().map(owe).collect();
            loop {
                tokio::select! {
                    Some((server, vote)) = rest.next() => {
                        debts.extend(owed(server, vote).into_iter().map(owe));
                    }
                    Some(()) = debts.next() => {}
                    else => return,
                }
            }
        }));
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
async fn owe((node, given): Debt) {
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
