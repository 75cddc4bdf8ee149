//! What becomes of an acquire that got no majority: votes are given back, and whoever waits stands in line
//! where the lock is taken.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    QuorumStore,
    acquire::{PAUSE, is_granted},
    ballot::Ballot,
    line::shortly,
    linger,
    node::{Given, Wanted},
};
use crate::{
    few::Few,
    lease::Time,
    store::{Acquired, News, Place, StoreError},
};

/// How long servers are waited for that were asked to take a vote back.
const TAKE_BACK: Duration = Duration::from_millis(250);

impl QuorumStore {
    /// Gives back what a minority granted, and stands in line if so wished, and if that is done by then.
    pub(super) async fn refused(
        &self,
        wanted: &Wanted,
        line_by: Option<Instant>,
        mut ballot: Ballot<Acquired>,
        sent_at: Time,
    ) -> Result<Acquired, StoreError> {
        // Once more, if that was done before: what is not held is not given back.
        let spoilt = !self.taken_back(votes_of(wanted, &ballot)).await;
        let in_line = match (in_line(&ballot), line_by) {
            (Some(server), _) => Some(server),
            (None, Some(by)) if !spoilt => self.stand_in_line(wanted, &mut ballot, by).await,
            (None, _) => None,
        };
        if in_line.is_some() {
            self.stood.notify_one();
        }
        // Who has a place in line gives it back on all servers, if it does not ask again; who has none is
        // to give back what may come yet.
        let spoilt = spoilt || in_line.is_none() && ballot.may_grant_yet();
        let answer = refusal(wanted, &ballot, in_line, sent_at, spoilt);
        self.follow(ballot.into_rest());
        Ok(answer)
    }

    /// Has servers take back what they granted; answers whether all have. Who asks again as the same
    /// owner must not be overtaken by that.
    pub(super) async fn taken_back(&self, granted: Vec<(usize, Given)>) -> bool {
        if granted.is_empty() {
            return true;
        }
        let taken_back = granted.into_iter().map(|(server, given)| {
            let node = Arc::clone(&self.nodes[server]);
            async move { node.release_within(&given, TAKE_BACK).await }
        });
        join_all(taken_back).await.iter().all(Result::is_ok)
    }

    /// Stands in line where the lock is taken, if the lead is not such a place. Answers where.
    async fn stand_in_line(
        &self,
        wanted: &Wanted,
        ballot: &mut Ballot<Acquired>,
        by: Instant,
    ) -> Option<usize> {
        let refused = ballot.answers().filter(|(_, answer)| !is_granted(answer));
        let well = refused.filter(|(server, _)| self.nodes[*server].is_well());
        let places: Vec<usize> = well.map(|(server, _)| server).take(2).collect();
        for server in places {
            let now = Instant::now();
            if by < now + linger::SHORTEST {
                return None;
            }
            let until = by.min(now + linger::LONGEST);
            let asked = self.nodes[server].acquire(wanted, true, Arc::default(), false);
            let Some((_, vote)) = shortly(until, asked).await else {
                self.nodes[server].health.fails();
                continue;
            };
            let free = matches!(&vote, Ok(answer) if is_granted(answer));
            ballot.set(server, vote);
            if free {
                for claim in &*wanted.claims {
                    (self.listener)(News::AskAgain {
                        key: claim.key.clone(),
                        owner: claim.owner,
                        after: PAUSE,
                    });
                }
                return Some(server);
            }
            if in_line(ballot).is_some() {
                return Some(server);
            }
        }
        None
    }
}

/// What servers granted.
pub(super) fn votes_of(wanted: &Wanted, ballot: &Ballot<Acquired>) -> Vec<(usize, Given)> {
    let mut votes = Vec::new();
    for (server, answer) in ballot.answers() {
        if let Acquired::Granted { tokens, .. } = answer {
            let claims = wanted.claims.iter().zip(tokens);
            votes.extend(claims.map(|(claim, token)| (server, Given::back(claim, *token))));
        }
    }
    votes
}

/// Where the owner stands in line.
fn in_line(ballot: &Ballot<Acquired>) -> Option<usize> {
    let mut answers = ballot.answers();
    answers.find_map(|(server, answer)| place(answer).map(|_| server))
}

fn place(answer: &Acquired) -> Option<Place> {
    match answer {
        Acquired::Held { in_line, .. } => *in_line,
        Acquired::Granted { .. } | Acquired::NotHeld => None,
    }
}

/// What whoever asked is told, from what the servers said that refused.
fn refusal(
    wanted: &Wanted,
    ballot: &Ballot<Acquired>,
    line: Option<usize>,
    at: Time,
    is_spoilt: bool,
) -> Acquired {
    let (mut claim, mut ttl) = (0, None);
    let mut fences: Few<u64> = wanted.claims.iter().map(|_| 0).collect();
    for (server, answer) in ballot.answers() {
        if let Acquired::Held {
            claim: taken,
            ttl: left,
            fences: known,
            ..
        } = answer
        {
            for (fence, known) in fences.iter_mut().zip(known) {
                *fence = (*fence).max(*known);
            }
            if ttl.is_none() || line == Some(server) {
                (claim, ttl) = (*taken, *left);
            }
        }
    }
    // At a server where the lock was free, the waiter asks again soon.
    let place = |server| match ballot.vote(server) {
        Some(Ok(answer)) => place(answer).unwrap_or(Place::BEHIND),
        _ => Place::BEHIND,
    };
    Acquired::Held {
        claim,
        ttl,
        in_line: line.map(place),
        sent_at: at,
        fences,
        spoilt: is_spoilt,
    }
}
