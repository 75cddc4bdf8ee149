//! Delays, loses and delivers requests, replies and notifications.

use std::{rc::Rc, time::Duration};

use rlock_model::requests::{Answer, Body, to_input};

use crate::{
    clients::{Awaited, Confirmed, Sent, Vote},
    lease::Time,
    machine::{Event, Failure, Input, Reply},
    plan::{Part, WorldKind},
    rules::{IN_TIME, NO_REFUSAL},
    store::{
        Acquired, Applied, Claim, ReleaseRequest, RenewalOutcome, Renewed,
        decisions::{self, Votes},
    },
    world::{MS, Place, Who, World, nanos},
};

/// The connection of callers, that of the background, and the way of notifications.
const CALLERS: u8 = 0;
const BACKGROUND: u8 = 1;
const BACK: u8 = 2;
/// A message that is not held takes no longer.
const LATE: u64 = 100 * MS;
/// How long a quorum waits for the members that take a grant back.
const ROLLBACK: u64 = 250 * MS;

/// No reply comes, the request was not sent, or the server refuses it for good.
const UNANSWERED: Failure = Failure {
    maybe_executed: true,
    transient: true,
};
const UNSENT: Failure = Failure {
    maybe_executed: false,
    transient: true,
};
const REFUSED: Failure = Failure {
    maybe_executed: false,
    transient: false,
};

impl World {
    /// Draws how long a message takes.
    fn delay(&mut self) -> u64 {
        if self.occurs(Part::MessageHeld) {
            let delay = self.rng.u64(100 * MS..5_000 * MS);
            self.moves_until(self.now + delay);
            delay
        } else if self.rng.u8(..) < 8 && self.plan.world != WorldKind::Calm {
            self.rng.u64(..LATE)
        } else {
            self.rng.u64(MS / 5..2 * MS)
        }
    }

    /// Returns after what time a message arrives. A connection keeps their order.
    fn travels(&mut self, client: usize, server: usize, connection: u8, not_before: u64) -> u64 {
        let at = (self.now + self.delay()).max(not_before);
        let last = self.clients[client]
            .arrivals
            .entry((server, connection))
            .or_default();
        *last = at.max(*last + 1);
        *last - self.now
    }

    /// Sends a request to all servers.
    pub(crate) fn sends(&mut self, client: usize, sent: Sent) {
        let (who, id, servers) = (self.who(client), self.number(), self.servers.len());
        let body = Rc::new(self.body(client, &sent));
        let (timeout, owner, in_doubt) = match &sent {
            Sent::Request(asked) => (asked.timeout, asked.claims[0].owner, asked.is_in_doubt()),
            Sent::Renew(renew) => (renew.rest, renew.owner, false),
        };
        let state = &mut self.clients[client];
        let awaited = Awaited {
            sent,
            body: Rc::clone(&body),
            began: self.now,
            sent_at: state.clock.time(self.now),
            votes: std::iter::repeat_with(|| None).take(servers).collect(),
        };
        // A member of a quorum has one connection.
        let has_two = self.plan.has(Part::TwoConnections) && servers == 1;
        let in_background = has_two && awaited.call().is_none() && !in_doubt;
        let connection = if in_background { BACKGROUND } else { CALLERS };
        state.awaited.insert(id, awaited);
        let not_before = state.owners.get(&owner).filter(|_| in_doubt);
        let not_before = not_before.map_or(0, |at| at + 1);
        self.at_client(client, nanos(timeout), move |world| {
            world.timed_out(client, id);
        });
        if let (Some(lease), true) = (body.lease(), servers > 1) {
            let within = nanos(decisions::decisive(timeout, lease));
            self.at_client(client, within, move |world| world.decides(client, id));
        }
        // All servers refuse it for good, as without a permission.
        let is_refused = self.occurs(Part::RequestRefused);
        let mut latest = self.now;
        for server in 0..servers {
            if is_refused {
                self.replies(who, id, server, MS, Err(REFUSED));
            } else if self.servers[server].down_until > self.now
                || self.occurs(Part::RequestNotSent)
            {
                let after = self.rng.u64(..5 * MS);
                self.replies(who, id, server, after, Err(UNSENT));
            } else if self.occurs(Part::RequestLost) {
                self.is_lost(who, id, server);
            } else {
                let is_repeated = self.occurs(Part::RequestRepeated);
                // A proxy may repeat a request after later ones of its connection.
                let is_late = is_repeated && servers > 1 && self.rng.bool();
                let mut after = 0;
                for _ in 0..=usize::from(is_repeated && !is_late) {
                    after = self.travels(client, server, connection, not_before);
                    latest = latest.max(self.now + after);
                    if after > LATE {
                        // It waits behind a message that is held.
                        self.moves_until(self.now + after);
                    }
                    self.brings(who, server, after, Some(id), Rc::clone(&body));
                }
                if is_late {
                    after += self.rng.u64(..5_000 * MS);
                    self.moves_until(self.now + after);
                    self.brings(who, server, after, None, Rc::clone(&body));
                }
            }
        }
        let (now, owners) = (self.now, &mut self.clients[client].owners);
        let known = owners.entry(owner).or_default();
        *known = latest.max(*known);
        if owners.len() > 64 {
            owners.retain(|_, at| *at > now);
        }
    }

    /// A message is lost. The connection may break, so that the client need not wait.
    fn is_lost(&mut self, who: Who, id: u64, server: usize) {
        self.moves_all();
        if self.rng.bool() {
            let after = self.rng.u64(..50 * MS);
            self.replies(who, id, server, after, Err(UNANSWERED));
        }
    }

    /// Brings a request to a server after this time. Without a number, no reply is awaited.
    fn brings(&mut self, who: Who, server: usize, after: u64, id: Option<u64>, body: Rc<Body>) {
        let master = self.master_of(who.client);
        self.later(Place::Server(server), after, move |world| {
            if let Some(server) = world.leads_to(server, master) {
                world.arrives(server, who, id, &body);
            }
        });
    }

    fn replies(&mut self, who: Who, id: u64, server: usize, after: u64, vote: Vote) {
        self.later(Place::Client(who), after, move |world| {
            world.voted(who.client, id, server, vote);
        });
    }

    fn body(&self, client: usize, sent: &Sent) -> Body {
        let sender = &self.clients[client];
        match sent {
            Sent::Request(request) => Body::of(request, sender.id, sender.floor),
            Sent::Renew(renew) => {
                let mut renewal = renew.for_store(sender.id);
                if self.servers.len() > 1 {
                    renewal = decisions::with_step(&renewal);
                }
                Body::Renew(renewal, renew.lease)
            }
        }
    }

    /// A server executes a request.
    fn arrives(&mut self, server: usize, who: Who, id: Option<u64>, body: &Body) {
        let is_former = server >= self.servers.len();
        if !is_former && self.servers[server].down_until > self.now {
            return id.map_or((), |id| self.is_lost(who, id, server));
        }
        let unseen = if is_former {
            Vec::new()
        } else {
            self.unseen(server, who, body)
        };
        let now = self.now;
        let answer = self.server(server).execute(body, now);
        if is_former {
            self.is_not_replicated(body, &answer);
        }
        for key in unseen {
            if self.servers[server].has_fence(&key) {
                self.voids(&key);
            }
        }
        if let (Body::Acquire(..), Answer::Acquired(Acquired::Outdated)) = (body, &answer)
            && id.is_some()
        {
            let what = format!("client {} asks for a released owner: {body:?}", who.client);
            self.breaks(NO_REFUSAL, what);
        }
        if let (Body::Release(release, _), Answer::Applied(Applied::Done)) = (body, &answer)
            && self.servers.len() == 1
            && release.owner.is_of(self.clients[who.client].id)
        {
            self.clients[who.client]
                .notes
                .released(release.owner.sequence());
        }
        if let (Body::Acquire(..), Answer::Acquired(Acquired::Granted { .. })) = (body, &answer) {
            body.keys()
                .iter()
                .for_each(|key| self.occupied(server, key));
        }
        self.note(|| {
            format!(
                "server {server} for client {}: {body:?}: {answer:?}",
                who.client
            )
        });
        self.notifies(server);
        let Some(id) = id else { return };
        if self.occurs(Part::ReplyLost) {
            return self.is_lost(who, id, server);
        }
        let after = self.delay();
        self.replies(who, id, server, after, Ok(answer));
    }

    /// Sends the notifications of a server.
    pub(crate) fn notifies(&mut self, server: usize) {
        let members = self.servers.len();
        for (id, event) in self.server(server).take_events() {
            let client = self.clients.iter().position(|client| client.id == id);
            let event = match members {
                1 => Some(event),
                _ => decisions::of_member(event, members, fastrand::f64),
            };
            let (Some(client), Some(input)) = (client, event.and_then(to_input)) else {
                continue;
            };
            let is_deaf = self.clients[client].deaf_until > self.now;
            if is_deaf || self.occurs(Part::NotificationLost) {
                // A renewal tells that others wait, too.
                if !matches!(input, Input::Event(_, _, Event::Wanted)) {
                    self.moves_all();
                }
                continue;
            }
            let after = self.travels(client, server, BACK, 0);
            let who = self.who(client);
            if let Input::Event(_, _, Event::Granted { fence, .. }) = input {
                self.later(Place::Client(who), after, move |world| {
                    world.clients[client].sees(fence);
                });
            }
            let master = self.master_of(client);
            self.later(Place::Client(who), after, move |world| {
                if world.master_of(client) == master {
                    world.on(client, input, None);
                }
            });
        }
    }

    /// Notes the reply of one server, and decides if it can.
    fn voted(&mut self, client: usize, id: u64, server: usize, vote: Vote) {
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
    fn decides(&mut self, client: usize, id: u64) {
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

    pub(crate) fn timed_out(&mut self, client: usize, id: u64) {
        if self.servers.len() > 1 {
            self.decides(client, id);
        } else {
            self.replied(client, id, Err(UNANSWERED));
        }
    }

    /// Tells the machine the outcome of a request, and polls the call that sent it.
    fn replied(&mut self, client: usize, id: u64, outcome: Vote) {
        let state = &mut self.clients[client];
        let Some(awaited) = state.awaited.get(&id) else {
            return;
        };
        if state.is_unpolled(awaited) {
            if let (Sent::Request(request), Some(call)) = (&awaited.sent, awaited.call()) {
                let woken = Input::Woken {
                    call,
                    request: request.number,
                    is_polled: false,
                };
                self.on(client, woken, None);
            }
            return;
        }
        let Some(awaited) = state.awaited.remove(&id) else {
            return;
        };
        if let Ok(answer) = &outcome {
            state.sees(largest_fence(answer));
        }
        let (took, lease) = (self.now - awaited.began, awaited.body.lease().map(nanos));
        let polled = awaited.call().filter(|call| state.calls.contains_key(call));
        if let Some(task) = polled.and_then(|call| state.calls.get(&call)) {
            let task = &mut state.tasks[*task];
            let most = lease.map(|lease| (lease / 10 * 9).saturating_sub(3 * MS));
            task.is_sending = false;
            task.has_failed |= outcome.is_err();
            task.was_late |= most.is_some_and(|most| took > most);
        }
        let sent_at = awaited.sent_at;
        let input = match awaited.sent {
            Sent::Request(request) => Input::Reply(request, reply(outcome, sent_at)),
            Sent::Renew(renew) => {
                let outcome = outcome.ok();
                let outcome = outcome.and_then(|answer| Some(renewed(&answer)?.kept[0]));
                Input::Renewed {
                    renew: *renew,
                    sent_at,
                    outcome,
                }
            }
        };
        let most = lease.map(|lease| (lease / 8).max(20 * MS) + ROLLBACK);
        let is_late = most.is_some_and(|most| took > most) && self.servers.len() > 1;
        if is_late && !self.plan.has(Part::ClientPaused) {
            let what = format!("client {client} waits for a majority: {input:?}");
            self.breaks(IN_TIME, what);
        }
        self.on(client, input, polled);
    }
}

fn reply(outcome: Vote, sent_at: Time) -> Reply {
    match outcome.map(|answer| answer.since(sent_at)) {
        Ok(Answer::Acquired(reply)) => Reply::Acquired(reply),
        Ok(Answer::Applied(reply)) => Reply::Applied(reply),
        Ok(Answer::Renewed(_) | Answer::Restored(_)) => Reply::None,
        Err(failure) => Reply::Failed(failure),
    }
}

fn largest_fence(answer: &Answer) -> u64 {
    let fences: Vec<u64> = match answer {
        Answer::Acquired(Acquired::Granted { fences, .. } | Acquired::Taken { fences, .. }) => {
            fences.iter().copied().collect()
        }
        Answer::Renewed(renewed) => {
            let fence = |outcome: &RenewalOutcome| match outcome {
                RenewalOutcome::Held { fence, .. } => *fence,
                _ => 0,
            };
            renewed.kept.iter().map(fence).collect()
        }
        Answer::Acquired(_) | Answer::Applied(_) | Answer::Restored(_) => Vec::new(),
    };
    fences.into_iter().max().unwrap_or_default()
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

fn renewed(answer: &Answer) -> Option<&Renewed> {
    match answer {
        Answer::Renewed(reply) => Some(reply),
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
