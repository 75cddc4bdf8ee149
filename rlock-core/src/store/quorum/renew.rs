//! Renewal by a majority, and mending of what the others have lost.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::{
    QuorumStore,
    ballot::Ballot,
    linger::Linger,
    node::{Node, Wanted},
    votes::{Tally, Verdict},
};
use crate::store::{Acquired, Claim, Kept, Mending, Renewal, Renewed, Servers, StoreError};

/// For which part of the time that is left the last answers are waited for where the others differ.
const DECISIVE: u32 = 4;

impl QuorumStore {
    pub(super) async fn renew_all(
        &self,
        batch: &[Renewal],
        patience: Duration,
        silence: Duration,
    ) -> Result<Renewed, StoreError> {
        let sent_at = self.clock.now();
        let renewals: Arc<[Renewal]> = batch.into();
        let mut ballot = self.ballot();
        let over = (!self.is_up()).then(|| ballot.over());
        for node in &*self.nodes {
            let by = (patience, silence);
            let request = node.renew(Arc::clone(&renewals), by, over.clone());
            ballot.ask(node.number, request);
        }
        // Holds that are decided do not wait for long for those that are not.
        let mut linger = Linger::new(Instant::now() + patience);
        let decisive = Instant::now() + patience / DECISIVE;
        while ballot.pending().next().is_some() && !self.is_decided(&ballot, batch.len()) {
            let limit = if !ballot.has_majority() {
                linger.until
            } else if any_open(&ballot, batch.len()) {
                linger.over().max(decisive)
            } else {
                linger.over()
            };
            if !ballot.next(limit).await {
                break;
            }
        }
        let answer = if ballot.has_majority() {
            let kept = (0..batch.len()).map(|hold| kept(&ballot, hold)).collect();
            Ok(Renewed { kept, sent_at })
        } else {
            Err(ballot.error(&self.nodes))
        };
        self.follow(ballot.into_rest());
        answer
    }

    /// Whether answers that are to come would change nothing; those of servers that answer as a rule
    /// show where something is to be mended.
    fn is_decided(&self, ballot: &Ballot<Renewed>, holds: usize) -> bool {
        let well = |server: usize| !self.nodes[server].health.is_failing();
        !ballot.pending().any(well) && !any_open(ballot, holds)
    }

    pub(super) async fn mend_on(&self, hold: Mending, on: Servers, patience: Duration) {
        let nodes = self.nodes.iter().filter(|node| on.has(node.number));
        let mended = join_all(nodes.map(|node| mend(node, &hold)));
        // What comes later is followed by a release, or mended by the next renewal.
        let _ = timeout(patience, mended).await;
    }
}

fn any_open(ballot: &Ballot<Renewed>, holds: usize) -> bool {
    (0..holds).any(|hold| tally(ballot, hold).verdict() == Verdict::Open)
}

fn tally(ballot: &Ballot<Renewed>, hold: usize) -> Tally {
    ballot.tally(|renewed| renewed.kept.get(hold).is_some_and(|kept| kept.is_whole()))
}

fn kept(ballot: &Ballot<Renewed>, hold: usize) -> Kept {
    match tally(ballot, hold).verdict() {
        Verdict::Yes => {
            let lost = ballot
                .answers()
                .filter(|(_, renewed)| renewed.kept.get(hold) == Some(&Kept::No));
            let lost = lost.fold(0, |lost, (server, _)| lost | 1 << server);
            let wanted =
                |(_, renewed): (usize, &Renewed)| renewed.kept.get(hold) == Some(&Kept::Wanted);
            match lost {
                0 => Kept::by_one(true, ballot.answers().any(wanted)),
                lost => Kept::NotOn(Servers(lost)),
            }
        }
        Verdict::No => Kept::No,
        Verdict::Split | Verdict::TooFew | Verdict::Open => Kept::Unknown,
    }
}

/// Gives the hold to a server that does not know of it: first as anybody takes a lock, then the rest.
async fn mend(node: &Arc<Node>, hold: &Mending) {
    let claim = Claim {
        key: hold.key.clone(),
        owner: hold.owner,
    };
    let mut wanted = Wanted {
        claims: Arc::new([claim]),
        lease: hold.lease,
        count: 1,
    };
    let (_, taken) = node.acquire(&wanted, false, Arc::default(), false).await;
    let Ok(Acquired::Granted { tokens, .. }) = taken else {
        return;
    };
    if tokens.iter().any(|token| *token < hold.token) {
        let _ = node
            .raise(&wanted, [hold.token].into_iter().collect())
            .await;
    }
    if hold.count > 1 {
        wanted.count = hold.count;
        let _ = node.acquire(&wanted, false, Arc::default(), false).await;
    }
    tracing::debug!(address = node.address, key = %hold.key, "a hold was mended");
}
