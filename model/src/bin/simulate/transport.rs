//! Requests on their way to the servers, and replies and notifications on their way back.

use std::{rc::Rc, time::Duration};

use crate::{
    clients::{Awaited, Sent, Vote},
    engine::machine::{Ask, CallId, Event, Failure, Input, Reply},
    lease::Time,
    owner::OwnerId,
    plan::Fault,
    servers::{Answer, Body},
    store::{
        self, AcquireRequest, Acquired, Claim, ReleaseRequest, Released, Renewal, RenewalOutcome,
        Renewed,
        decisions::{self, Votes},
    },
    world::{Happening, MS, Who, World, nanos},
};

/// The connection of callers, and that of the background.
const CALLERS: u8 = 0;
const BACKGROUND: u8 = 1;
/// The direction of notifications.
const BACK: u8 = 2;
/// A message that is not held takes no longer.
const LATE: u64 = 100 * MS;
/// How long a quorum waits for the members that take a grant back.
const ROLLBACK: u64 = 250 * MS;

impl World {
    /// Draws how long a message takes.
    fn delay(&mut self) -> u64 {
        if self.occurs(Fault::Held) {
            let delay = self.rng.u64(100 * MS..5_000 * MS);
            self.moves_until(self.now + delay);
            delay
        } else if self.rng.u8(..) < 8 && !self.is_calm() {
            self.rng.u64(..LATE)
        } else {
            self.rng.u64(MS / 5..2 * MS)
        }
    }

    /// Sends a request to all servers.
    pub(crate) fn sends(&mut self, client: usize, sent: Sent, call: Option<CallId>) {
        let (who, id, servers) = (self.who(client), self.number(), self.servers.len());
        let body = Rc::new(self.body(client, &sent));
        let (timeout, owner, in_doubt) = match &sent {
            Sent::Request(request) => {
                let owner = request.claims[0].owner;
                (request.timeout, owner, request.is_in_doubt())
            }
            Sent::Renew(renew) => (renew.left, renew.owner, false),
        };
        let lease = sent.lease();
        let sent_at = self.clients[client].clock.time(self.now);
        let votes = vec![None; servers];
        let awaited = Awaited {
            sent,
            call,
            began: self.now,
            sent_at,
            votes,
        };
        self.clients[client].awaited.insert(id, awaited);
        self.later(nanos(timeout), Happening::TimeOut(who, id));
        if let Some(lease) = lease.filter(|_| servers > 1) {
            let within = decisions::decisive(timeout, lease);
            self.later(nanos(within), Happening::Decide(who, id));
        }
        if self.occurs(Fault::Refused) {
            // All servers refuse it for good, as without a permission.
            for server in 0..servers {
                let vote = Vote::Failed {
                    maybe_executed: false,
                    transient: false,
                };
                self.later(MS, Happening::Replied(who, id, server, vote));
            }
            return;
        }
        let connection = match call {
            None if self.plan.two_connections && !in_doubt => BACKGROUND,
            _ => CALLERS,
        };
        let mut latest = self.now;
        for server in 0..servers {
            if self.occurs(Fault::Unsent) {
                let vote = Vote::Failed {
                    maybe_executed: false,
                    transient: true,
                };
                let after = self.rng.u64(..5 * MS);
                self.later(after, Happening::Replied(who, id, server, vote));
                continue;
            }
            if self.occurs(Fault::RequestLost) {
                self.moves_all();
                self.may_notice(who, id, server);
                continue;
            }
            for _ in 0..=usize::from(self.occurs(Fault::Repeated)) {
                let at = self.now + self.delay();
                let state = &mut self.clients[client];
                let last = state.arrivals.entry((server, connection)).or_default();
                let mut at = at.max(*last + 1);
                if in_doubt {
                    at = at.max(state.owners.get(&owner).copied().unwrap_or_default() + 1);
                }
                state.arrivals.insert((server, connection), at);
                latest = latest.max(at);
                if at > self.now + LATE {
                    // It waits behind a message that is held.
                    self.moves_until(at);
                }
                let arrives = Happening::Arrives(server, who, Some(id), Rc::clone(&body));
                self.later(at - self.now, arrives);
            }
        }
        let now = self.now;
        let owners = &mut self.clients[client].owners;
        let known = owners.entry(owner).or_default();
        *known = latest.max(*known);
        if owners.len() > 64 {
            owners.retain(|_, at| *at > now);
        }
    }

    /// After a lost message, the connection may break, so that the client need not wait.
    fn may_notice(&mut self, who: Who, id: u64, server: usize) {
        if self.rng.bool() {
            let vote = Vote::Failed {
                maybe_executed: true,
                transient: true,
            };
            let after = self.rng.u64(..50 * MS);
            self.later(after, Happening::Replied(who, id, server, vote));
        }
    }

    /// Notes that grants of all keys may be delayed.
    pub(crate) fn moves_all(&mut self) {
        self.moves_until(self.now);
    }

    /// Notes that grants of all keys may be delayed until this time.
    pub(crate) fn moves_until(&mut self, until: u64) {
        for key in &self.keys {
            self.judge.moves(key, until);
        }
    }

    fn body(&self, client: usize, sent: &Sent) -> Body {
        let id = self.clients[client].id;
        let request = match sent {
            Sent::Renew(renew) => {
                let claim = Claim {
                    key: renew.key.clone(),
                    owner: OwnerId::new(id, renew.owner),
                };
                return Body::Renew(self.renewal(claim, renew.fence), renew.lease);
            }
            Sent::Request(request) => request,
        };
        let claims = request.claims.iter().map(|claim| Claim {
            key: claim.key.clone(),
            owner: OwnerId::new(id, claim.owner),
        });
        let (lease, count, waits) = match request.what {
            Ask::Acquire { lease, waits } => (lease, 1, waits),
            Ask::Enter { lease, count } => (lease, count, false),
            Ask::Lower {
                fence,
                count,
                at_least,
                ..
            } => {
                let claim = &request.claims[0];
                let (key, owner) = (claim.key.clone(), OwnerId::new(id, claim.owner));
                return Body::Release(ReleaseRequest {
                    key,
                    owner,
                    fence,
                    count,
                    at_least,
                });
            }
        };
        Body::Acquire(AcquireRequest {
            claims: claims.collect(),
            lease,
            count,
            waits,
        })
    }

    fn renewal(&self, claim: Claim, fence: u64) -> Renewal {
        let renewal = Renewal { claim, fence };
        if self.servers.len() > 1 {
            decisions::with_step(&renewal)
        } else {
            renewal
        }
    }

    /// A server executes a request.
    pub(crate) fn arrives(&mut self, server: usize, who: Who, id: Option<u64>, body: &Body) {
        let answer = self.servers[server].execute(body, self.now);
        if let (Body::Release(release), Answer::Released(Released::Done)) = (body, &answer)
            && release.count == 0
            && self.servers.len() == 1
            && let Some(client) = self.clients.get_mut(who.client)
            && release.owner.is_of(client.id)
        {
            client.notes.released(release.owner.sequence(), self.now);
        }
        self.note(|| crate::words::executed(server, who.client, body, &answer));
        self.notifies(server);
        let Some(id) = id else { return };
        if self.occurs(Fault::ReplyLost) {
            self.moves_all();
            return self.may_notice(who, id, server);
        }
        let after = self.delay();
        self.later(
            after,
            Happening::Replied(who, id, server, Vote::Answer(answer)),
        );
    }

    /// Sends the notifications of a server.
    pub(crate) fn notifies(&mut self, server: usize) {
        let members = self.servers.len();
        for (id, event) in self.servers[server].take_events() {
            let Some(client) = self.clients.iter().position(|client| client.id == id) else {
                continue;
            };
            let event = if members > 1 {
                decisions::of_member(event, members)
            } else {
                Some(event)
            };
            let Some(input) = event.and_then(to_input) else {
                continue;
            };
            let is_deaf = self.clients[client].deaf_until > self.now;
            if is_deaf || self.occurs(Fault::EventLost) {
                // A renewal tells that others wait, too.
                if !matches!(input, Input::Event(_, _, Event::Wanted)) {
                    self.moves_all();
                }
                continue;
            }
            let (who, at) = (self.who(client), self.now + self.delay());
            let last = self.clients[client]
                .arrivals
                .entry((server, BACK))
                .or_default();
            *last = at.max(*last + 1);
            let after = *last - self.now;
            self.later(after, Happening::Event(who, input));
        }
    }

    /// Notes the reply of one server, and decides if it can.
    pub(crate) fn voted(&mut self, client: usize, id: u64, server: usize, vote: Vote) {
        let (who, now) = (self.who(client), self.now);
        let Some(awaited) = self.clients[client].awaited.get_mut(&id) else {
            return;
        };
        if self.servers.len() == 1 {
            return self.replied(client, id, vote);
        }
        // Without votes, the outcome is on its way.
        let Some(place) = awaited.votes.get_mut(server) else {
            return;
        };
        place.get_or_insert(vote);
        let began = awaited.began;
        let least = match &awaited.sent {
            Sent::Renew(renew) => renew.left / 4,
            Sent::Request(_) => decisions::SHORTEST_LATE,
        };
        let is_over = match &awaited.sent {
            Sent::Renew(_) => decisions::is_held(&renewals(awaited).votes(), 0).is_some(),
            Sent::Request(request) if matches!(request.what, Ask::Lower { .. }) => {
                decisions::is_released(&of(awaited, released)).is_some()
            }
            Sent::Request(_) => decisions::is_acquired(&of(awaited, acquired)) == Some(true),
        };
        let oks = awaited
            .votes
            .iter()
            .flatten()
            .filter(|vote| matches!(vote, Vote::Answer(_)));
        let has_majority = oks.count() > awaited.votes.len() / 2;
        if is_over || awaited.votes.iter().all(Option::is_some) {
            self.decide(client, id);
        } else if has_majority {
            let rest = decisions::rest(Duration::from_nanos(now - began), least);
            self.later(nanos(rest), Happening::Decide(who, id));
        }
    }

    /// Decides about a request to a quorum by the replies so far.
    pub(crate) fn decide(&mut self, client: usize, id: u64) {
        let who = self.who(client);
        let awaited = self.clients[client].awaited.get(&id);
        let Some(awaited) = awaited.filter(|awaited| !awaited.votes.is_empty()) else {
            return;
        };
        let sent_at = awaited.sent_at;
        let is_open = |vote: &Option<Vote>| match vote {
            None => true,
            Some(Vote::Failed { maybe_executed, .. }) => *maybe_executed,
            Some(Vote::Answer(_)) => false,
        };
        let in_doubt = awaited.votes.iter().any(is_open);
        let is_answer = |vote: &Vote| matches!(vote, Vote::Answer(_));
        let maybe_executed = in_doubt || awaited.votes.iter().flatten().any(is_answer);
        let Sent::Request(request) = &awaited.sent else {
            let outcome = decisions::renewed(&renewals(awaited).votes(), 0);
            return self.replied(client, id, Vote::Answer(Answer::Renewed(outcome)));
        };
        let request = request.clone();
        if let Ask::Lower { .. } = request.what {
            let outcome = decisions::released(&of(awaited, released));
            let outcome = outcome.map(|reply| Vote::Answer(Answer::Released(reply)));
            return self.replied(client, id, outcome.unwrap_or(no_majority(maybe_executed)));
        }
        let Body::Acquire(ask) = self.body(client, &Sent::Request(request)) else {
            return;
        };
        let awaited = &self.clients[client].awaited[&id];
        let outcome = decisions::acquired(&ask, &of(awaited, acquired), in_doubt, sent_at);
        let granting = |vote: &Option<Vote>| {
            let reply = vote.as_ref().and_then(|vote| acquired(vote));
            reply.is_some_and(decisions::is_granted)
        };
        let granting: Vec<usize> = (0..self.servers.len())
            .filter(|server| granting(&awaited.votes[*server]))
            .collect();
        let is_refused = matches!(outcome, Some(Acquired::Taken { .. })) && !granting.is_empty();
        let outcome = outcome.map(|reply| Vote::Answer(Answer::Acquired(reply)));
        let outcome = outcome.unwrap_or(no_majority(maybe_executed));
        if !is_refused {
            return self.replied(client, id, outcome);
        }
        // The call waits for the members that take their grants back.
        let mut after = 0;
        for server in granting {
            for claim in ask.claims.iter() {
                let body = Rc::new(Body::Release(ReleaseRequest::whole(claim)));
                let (at, is_lost) = (self.now + self.delay(), self.occurs(Fault::RequestLost));
                let last = self.clients[client]
                    .arrivals
                    .entry((server, CALLERS))
                    .or_default();
                *last = at.max(*last + 1);
                let takes = *last - self.now;
                after = after.max(if is_lost {
                    ROLLBACK
                } else {
                    (2 * takes).min(ROLLBACK)
                });
                if !is_lost {
                    self.later(takes, Happening::Arrives(server, who, None, body));
                }
            }
        }
        self.later(after, Happening::Outcome(who, id, outcome));
        // No further reply counts.
        if let Some(awaited) = self.clients[client].awaited.get_mut(&id) {
            awaited.votes.clear();
        }
    }

    pub(crate) fn timed_out(&mut self, client: usize, id: u64) {
        if self.servers.len() > 1 {
            return self.decide(client, id);
        }
        self.replied(
            client,
            id,
            Vote::Failed {
                maybe_executed: true,
                transient: true,
            },
        );
    }

    /// Tells the machine the outcome of a request, and polls the call that sent it.
    pub(crate) fn replied(&mut self, client: usize, id: u64, outcome: Vote) {
        let state = &mut self.clients[client];
        let Some(awaited) = state.awaited.get(&id) else {
            return;
        };
        if awaited
            .call
            .is_some_and(|call| state.unpolled.contains(&call))
        {
            return;
        }
        let Some(awaited) = state.awaited.remove(&id) else {
            return;
        };
        let (call, sent_at) = (awaited.call, awaited.sent_at);
        let lease = awaited.sent.lease().map_or(u64::MAX, nanos);
        let is_late = self.now - awaited.began > (lease / 10 * 9).saturating_sub(3 * MS);
        let has_failed = is_late || !matches!(outcome, Vote::Answer(_));
        let polled = call.filter(|call| state.calls.contains_key(call));
        if let Some(task) = polled.and_then(|call| state.calls.get(&call)) {
            state.tasks[*task].is_sending = false;
            state.tasks[*task].has_failed |= has_failed;
        }
        let input = match awaited.sent {
            Sent::Request(request) => Input::Reply(request, reply(outcome, sent_at)),
            Sent::Renew(renew) => {
                let outcome = match outcome {
                    Vote::Answer(Answer::Renewed(outcome)) => Some(outcome),
                    _ => None,
                };
                let event = Event::Renewed {
                    lease: renew.lease,
                    sent_at,
                    outcome,
                };
                Input::Event(renew.key, Some(renew.owner), event)
            }
        };
        self.on(client, input, polled);
    }
}

fn no_majority(maybe_executed: bool) -> Vote {
    Vote::Failed {
        maybe_executed,
        transient: true,
    }
}

fn reply(outcome: Vote, at: Time) -> Reply {
    match outcome {
        Vote::Answer(Answer::Acquired(mut reply)) => {
            // A lease counts from before its request was sent.
            if let Acquired::Granted { sent_at, .. } | Acquired::Taken { sent_at, .. } = &mut reply
            {
                *sent_at = at;
            }
            Reply::Acquired(reply)
        }
        Vote::Answer(Answer::Released(reply)) => Reply::Released(reply),
        Vote::Answer(Answer::Renewed(_)) => Reply::None,
        Vote::Failed {
            maybe_executed,
            transient,
        } => Reply::Failed(Failure {
            maybe_executed,
            transient,
        }),
    }
}

fn to_input(event: store::Event) -> Option<Input> {
    Some(match event {
        store::Event::Granted {
            key,
            owner,
            fence,
            ttl,
            wanted,
        } => Input::Event(
            key,
            Some(owner.sequence()),
            Event::Granted { fence, ttl, wanted },
        ),
        store::Event::Wanted { key, owner } => {
            Input::Event(key, Some(owner.sequence()), Event::Wanted)
        }
        store::Event::Retry { key, owner, after } => {
            Input::Event(key, Some(owner.sequence()), Event::Retry(after))
        }
        store::Event::Changed(key) => Input::Event(key, None, Event::Changed),
        _ => return None,
    })
}

fn acquired(vote: &Vote) -> Option<&Acquired> {
    match vote {
        Vote::Answer(Answer::Acquired(reply)) => Some(reply),
        _ => None,
    }
}

fn released(vote: &Vote) -> Option<&Released> {
    match vote {
        Vote::Answer(Answer::Released(reply)) => Some(reply),
        _ => None,
    }
}

/// Returns the replies to a request.
fn of<T>(awaited: &Awaited, reply: impl Fn(&Vote) -> Option<&T>) -> Votes<'_, T> {
    Votes {
        members: awaited.votes.len(),
        replies: awaited.votes.iter().flatten().filter_map(reply).collect(),
    }
}

/// The replies to a renewal, as the members send them: for a batch of one.
struct Renewals(usize, Vec<Renewed>);

fn renewals(awaited: &Awaited) -> Renewals {
    let outcome = |vote: &Vote| match vote {
        Vote::Answer(Answer::Renewed(outcome)) => Some(*outcome),
        _ => None,
    };
    let outcomes: Vec<RenewalOutcome> =
        awaited.votes.iter().flatten().filter_map(outcome).collect();
    let renewed = |outcome| Renewed {
        kept: vec![outcome],
        sent_at: awaited.sent_at,
    };
    Renewals(
        awaited.votes.len(),
        outcomes.into_iter().map(renewed).collect(),
    )
}

impl Renewals {
    fn votes(&self) -> Votes<'_, Renewed> {
        Votes {
            members: self.0,
            replies: self.1.iter().collect(),
        }
    }
}
