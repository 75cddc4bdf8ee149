//! What a client decides by the replies of a quorum's members: when an outcome is certain, which members restore a lock, and which
//! take a grant back.

use std::{rc::Rc, time::Duration};

use rlock_model::requests::{Answer, Body};

use super::{CALLERS, UNANSWERED, renewed};
use crate::{
    clients::{Awaited, Confirmed, Sent, Vote},
    machine::Failure,
    plan::Part,
    store::{
        Acquired, Applied, Claim, ReleaseRequest, Renewed,
        decisions::{self, Votes},
    },
    world::{MS, World, nanos},
};

/// How long a quorum waits for the members that take a grant back.
pub(super) const ROLLBACK: u64 = 250 * MS;

impl World {
    /// Notes the reply of one server, and decides if it can.
    pub(super) fn voted(&mut self, client: usize, id: u64, server: usize, vote: Vote) {
        if self.servers.len() == 1 {
            return self.replied(client, id, vote);
        }
        if self.clients[client].confirmed.contains_key(&id) {
            return self.restores(client, id, server, &vote);
        }
        let Some(awaited) = self.clients[client].awaited.get_mut(&id) else {
            return;
        };
        let Some(place) = awaited.votes.get_mut(server) else {
            return;
        };
        place.get_or_insert(vote);
        let (votes, mut least) = (&awaited.votes, decisions::SHORTEST_LATE);
        if let Sent::Renew(renew) = &awaited.sent {
            least = renew.rest / 4;
        }
        let is_over = match &*awaited.body {
            Body::Renew(..) => decisions::is_held(&of(votes, renewed), 0).is_some(),
            Body::SetCount(_) | Body::Downgrade(..) | Body::Release(..) => {
                decisions::is_applied(&of(votes, applied)).is_some()
            }
            Body::Acquire(..) => decisions::is_acquired(&of(votes, acquired)) == Some(true),
            Body::Restore(..) => unreachable!("no client waits for it"),
        };
        if is_over || votes.iter().all(Option::is_some) {
            self.decides(client, id);
        } else if of(votes, Some).have_majority() {
            let took = Duration::from_nanos(self.now - awaited.began);
            let rest = nanos(decisions::rest(took, least));
            self.at_client(client, rest, move |world| world.decides(client, id));
        }
    }

    /// Decides about a request to a quorum by the replies so far. No further reply counts.
    pub(super) fn decides(&mut self, client: usize, id: u64) {
        let Some(awaited) = self.clients[client].awaited.get_mut(&id) else {
            return;
        };
        let (votes, sent_at) = (std::mem::take(&mut awaited.votes), awaited.sent_at);
        let body = Rc::clone(&awaited.body);
        if votes.is_empty() {
            return;
        }
        let failure = |vote: &Option<Vote>| match vote {
            Some(vote) => vote.as_ref().err().copied(),
            None => Some(UNANSWERED),
        };
        let failures: Vec<Failure> = votes.iter().filter_map(failure).collect();
        let in_doubt = failures.iter().any(|failure| failure.maybe_executed);
        let are_final = failures.iter().filter(|failure| !failure.transient);
        let failure = Failure {
            maybe_executed: in_doubt || failures.len() < votes.len(),
            transient: are_final.count() <= votes.len() / 2,
        };
        let outcome = match &*body {
            Body::Renew(..) => {
                let kept = vec![decisions::renewed(&of(&votes, renewed), 0)];
                let outcome = Renewed { kept, sent_at };
                self.confirms(client, id, &votes, outcome.clone());
                Some(Answer::Renewed(outcome))
            }
            Body::SetCount(_) | Body::Downgrade(..) | Body::Release(..) => {
                let extends = matches!(*body, Body::SetCount(_));
                decisions::applied(&of(&votes, applied), extends).map(Answer::Applied)
            }
            Body::Acquire(request, _) => {
                let votes = of(&votes, acquired);
                decisions::acquired(request, &votes, in_doubt, sent_at, fastrand::f64)
                    .map(Answer::Acquired)
            }
            Body::Restore(..) => None,
        };
        let is_taken = matches!(&outcome, Some(Answer::Acquired(Acquired::Taken { .. })));
        let after = if is_taken {
            self.rolls_back(client, &body, &votes)
        } else {
            0
        };
        let vote = outcome.ok_or(failure);
        if after == 0 {
            return self.replied(client, id, vote);
        }
        self.at_client(client, after, move |world| world.replied(client, id, vote));
    }

    /// Handles the outcome of a renewal to which some members have replied.
    fn confirms(&mut self, client: usize, id: u64, votes: &[Option<Vote>], outcome: Renewed) {
        let state = &mut self.clients[client];
        let Some(Awaited {
            sent: Sent::Renew(renew),
            ..
        }) = state.awaited.get(&id)
        else {
            return;
        };
        let lease = if renew.lease.is_zero() {
            renew.rest
        } else {
            renew.lease
        };
        let asked = renew.for_store(state.id);
        let (until, now) = (outcome.sent_at + lease, state.clock.time(self.now));
        (state.confirmed).retain(|_, confirmed| now < confirmed.until);
        let confirmed = Confirmed {
            asked,
            outcome,
            lease,
            until,
        };
        state.confirmed.insert(id, confirmed);
        for (server, vote) in votes.iter().enumerate() {
            if let Some(vote) = vote {
                self.restores(client, id, server, vote);
            }
        }
    }

    /// Makes a member restore the lock that it lacks.
    fn restores(&mut self, client: usize, id: u64, server: usize, vote: &Vote) {
        let state = &self.clients[client];
        let confirmed = &state.confirmed[&id];
        let Claim { key, owner } = &confirmed.asked.claim;
        let own = state.machine.own(key, owner.sequence());
        let is_present = own.is_some_and(|own| own.is_present(state.clock.time(self.now)));
        let Some(by_member) = vote.as_ref().ok().and_then(renewed).filter(|_| is_present) else {
            return;
        };
        let asked = std::slice::from_ref(&confirmed.asked);
        let (lease, outcome) = (confirmed.lease, &confirmed.outcome);
        for renewal in decisions::to_restore(asked, outcome, by_member) {
            let body = Rc::new(Body::Restore(renewal, lease));
            for _ in 0..=usize::from(self.occurs(Part::RequestRepeated)) {
                let takes = self.travels(client, server, CALLERS, 0);
                if !self.occurs(Part::RequestLost) {
                    self.brings(self.who(client), server, takes, None, Rc::clone(&body));
                }
            }
        }
    }

    /// Takes the grants of members back. Returns for how long the call waits for that.
    fn rolls_back(&mut self, client: usize, body: &Body, votes: &[Option<Vote>]) -> u64 {
        let Body::Acquire(request, _) = body else {
            return 0;
        };
        let mut after = 0;
        for (server, vote) in votes.iter().enumerate() {
            let answer = vote.as_ref().and_then(|vote| vote.as_ref().ok());
            let is_granting = answer.and_then(acquired).is_some_and(decisions::is_granted);
            for claim in request.claims.iter().filter(|_| is_granting) {
                let takes = self.travels(client, server, CALLERS, 0);
                if self.occurs(Part::RequestLost) {
                    after = ROLLBACK;
                } else {
                    after = after.max(2 * takes).min(ROLLBACK);
                    let release = ReleaseRequest::of(claim);
                    let body = Rc::new(Body::Release(release, self.clients[client].floor));
                    self.brings(self.who(client), server, takes, None, body);
                }
            }
        }
        after
    }
}

fn acquired(answer: &Answer) -> Option<&Acquired> {
    match answer {
        Answer::Acquired(reply) => Some(reply),
        _ => None,
    }
}

fn applied(answer: &Answer) -> Option<&Applied> {
    match answer {
        Answer::Applied(reply) => Some(reply),
        _ => None,
    }
}

/// Returns the replies to a request so far.
fn of<'a, T>(
    votes: &'a [Option<Vote>],
    reply: impl Fn(&'a Answer) -> Option<&'a T>,
) -> Votes<'a, T> {
    let answers = votes.iter().flatten().filter_map(|vote| vote.as_ref().ok());
    let (members, replies) = (votes.len(), answers.filter_map(reply).collect());
    Votes { members, replies }
}
