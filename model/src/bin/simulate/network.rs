//! Delays, loses and delivers requests, replies and notifications.

mod quorum;

use std::rc::Rc;

use rlock_model::requests::{Answer, Body, to_input};

use self::quorum::ROLLBACK;
use crate::{
    clients::{Awaited, Sent, Vote},
    lease::Time,
    machine::{Event, Failure, Input, Reply},
    plan::{Part, WorldKind},
    rules::{Before, IN_TIME, NO_REFUSAL},
    store::{Acquired, Applied, RenewalOutcome, Renewed, decisions},
    world::{MS, Place, Who, World, nanos},
};

/// The connection of callers, that of the background, and the way of notifications.
const CALLERS: u8 = 0;
const BACKGROUND: u8 = 1;
const BACK: u8 = 2;
/// A message that is not held takes no longer.
const LATE: u64 = 100 * MS;

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
                if servers == 1 && matches!(*body, Body::Acquire(..)) && self.rng.bool() {
                    // The client has given up its connection, which the server reads later.
                    self.brings_late(who, server, Rc::clone(&body));
                }
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

    /// Brings a request after its client has stopped waiting, unless a restart has ended its connection.
    fn brings_late(&mut self, who: Who, server: usize, body: Rc<Body>) {
        let (after, restarts) = (self.rng.u64(..5_000 * MS), self.servers[server].restarts);
        self.later(Place::Server(server), after, move |world| {
            if world.servers[server].restarts == restarts {
                world.moves_all();
                world.brings(who, server, 0, None, body);
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
            Sent::Renew(renew) => Body::Renew(renew.for_store(sender.id), renew.lease),
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
            self.unseen(server, body)
        };
        let (now, is_alone) = (self.now, self.servers.len() == 1);
        let state = self.server(server);
        let at = state.time(now);
        let before = is_alone.then(|| Before::of(state, body, at));
        let answer = state.execute(body, now);
        let broken = before.and_then(|before| before.broken(state, (body, &answer), at));
        if let Some((rule, key)) = broken {
            self.breaks(rule, format!("{key}: server {server}, {body:?}"));
        }
        if is_former {
            self.is_not_replicated(body, &answer);
        }
        for key in unseen {
            if self.servers[server].has_fence(&key) {
                self.voids(&key);
            }
        }
        let is_quorum = self.servers.len() > 1;
        let is_awaited = |id| is_quorum || self.clients[who.client].awaited.contains_key(&id);
        if let (Body::Acquire(..), Answer::Acquired(Acquired::Outdated)) = (body, &answer)
            && id.is_some_and(is_awaited)
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
            // A lock that a hold has left to a call for several keys lasts for two thirds of its lease at least.
            let tenths = if task.wants.len() > 1 { 6 } else { 9 };
            let most = lease.map(|lease| (lease / 10 * tenths).saturating_sub(3 * MS));
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
        Answer::Acquired(acquired) => acquired.fences().collect(),
        Answer::Renewed(renewed) => {
            let fence = |outcome: &RenewalOutcome| match outcome {
                RenewalOutcome::Held { fence, .. } => *fence,
                _ => 0,
            };
            renewed.kept.iter().map(fence).collect()
        }
        Answer::Applied(_) | Answer::Restored(_) => Vec::new(),
    };
    fences.into_iter().max().unwrap_or_default()
}

fn renewed(answer: &Answer) -> Option<&Renewed> {
    match answer {
        Answer::Renewed(reply) => Some(reply),
        _ => None,
    }
}
