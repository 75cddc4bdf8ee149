//! The wait queue of a quorum. The queues of several members would share a lock out among the waiters that are
//! first in them, so one member keeps the queue, the *lead*: the first one that replies.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    QuorumStore,
    call::{LONGEST_LATE, Members, QuorumCall, SHORTEST_LATE, is_granted, refusing},
    member::Health,
};
use crate::{
    key::Key,
    lease::Time,
    store::{AcquireRequest, Acquired, Event, GRACE, Listener, QueuePlace, Store},
};

/// The first pause of an owner before it asks the other members again. Until then, an owner that is in its way by
/// chance rolls back.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// The interval at which a member is pinged while a waiter is in its queue.
const PING_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the number of the member that keeps the queue.
pub(super) fn lead(members: &Members) -> usize {
    let well = members.iter().position(|member| member.is_healthy());
    let up = || members.iter().position(|member| member.store.is_up());
    well.or_else(up).unwrap_or(0)
}

/// Returns whether the member has handed the lock off to the first waiter, which is about to ask the other members.
/// Newcomers do not overtake that waiter.
pub(super) fn has_handed_off(call: &QuorumCall<Acquired>, lead: usize) -> bool {
    let reply = call.reply(lead);
    matches!(reply, Some(Ok(Acquired::Taken { ttl: Some(ttl), .. })) if *ttl <= GRACE)
}

/// Returns a listener for one member. It forwards the events that concern the whole quorum.
pub(super) fn listener(health: Arc<Health>, listener: Listener) -> Listener {
    Arc::new(move |event| match event {
        // One member's grant is not yet the lock: the waiter asks all, and a holder repairs its lock there.
        Event::Granted { key, owner, .. } => {
            let after = Duration::ZERO;
            listener(Event::Changed(key.clone()));
            listener(Event::Retry { key, owner, after });
        }
        Event::Disconnected => {
            health.mark_failing();
            if health.leave_queue() {
                listener(Event::Disconnected);
            }
        }
        event => listener(event),
    })
}

impl QuorumStore {
    /// Pings the members in whose queues waiters are: a member that stands still sends no event.
    pub(super) async fn watch_queues(&self) {
        loop {
            if !self.members.iter().any(|member| member.has_queue()) {
                self.queued.notified().await;
            }
            sleep(PING_INTERVAL).await;
            for member in &*self.members {
                if member.has_queue()
                    && Arc::clone(member).ping(PING_INTERVAL).await.is_err()
                    && member.health.leave_queue()
                {
                    let address = member.store.describe();
                    tracing::debug!(address, "silent: waiters turn to another server");
                    (self.listener)(Event::Disconnected);
                }
            }
        }
    }

    /// Joins the queue of a member that refused, if the lead has not queued the owner. Returns which member has.
    pub(super) async fn join_queue(
        &self,
        request: &AcquireRequest,
        call: &mut QuorumCall<Acquired>,
        by: Instant,
    ) -> Option<usize> {
        let mut refusing = refusing(call).into_iter();
        let member = refusing.find(|member| self.members[*member].is_healthy())?;
        let now = Instant::now();
        if by < now + SHORTEST_LATE {
            return None;
        }
        let mut join = QuorumCall::new(&self.members);
        join.ask(member, |member, terms| {
            member.acquire(request.clone(), true, terms)
        });
        if !join.next(by.min(now + LONGEST_LATE)).await {
            self.members[member].health.mark_failing();
        }
        // Without a reply in time the member may still grant the lock, or queue the owner.
        let silent = || Err(self.members[member].why_silent());
        let reply = join.reply(member).cloned().unwrap_or_else(silent);
        self.detach(join);
        let is_free = reply.as_ref().is_ok_and(is_granted);
        call.set(member, reply);
        if is_free {
            self.ask_again(request, PAUSE);
            return Some(member);
        }
        queued_at(call)
    }

    /// Makes the owners of a request ask again after this time at the latest.
    pub(super) fn ask_again(&self, request: &AcquireRequest, after: Duration) {
        for claim in &*request.claims {
            (self.listener)(Event::Retry {
                key: claim.key.clone(),
                owner: claim.owner,
                after,
            });
        }
    }

    /// Makes the first waiter in the lead's queue ask again after a release. The lead handed nothing off, because
    /// another owner has the lock there, for example one whose client died.
    pub(super) async fn wake_waiter(&self, lead: usize, key: &Key) {
        let lead = &self.members[lead].store;
        if let Err(error) = lead.wake_waiter(key, LONGEST_LATE).await {
            tracing::debug!(address = lead.describe(), %error, "a waiter was not notified");
        }
    }
}

/// Returns the member in whose queue the owner is.
pub(super) fn queued_at(call: &QuorumCall<Acquired>) -> Option<usize> {
    let mut oks = call.oks();
    let queued = oks.find(|(_, reply)| {
        matches!(
            reply,
            Acquired::Taken {
                queued: Some(_),
                ..
            }
        )
    });
    queued.map(|(member, _)| member)
}

/// Returns the refusal of a waiter: the reply of the member that queued the owner, else of any member that refused.
pub(super) fn refusal(
    request: &AcquireRequest,
    call: &QuorumCall<Acquired>,
    queued_at: Option<usize>,
    sent_at: Time,
    retired: bool,
) -> Acquired {
    let held = |member| match call.reply(member) {
        Some(Ok(Acquired::Taken {
            claim, ttl, queued, ..
        })) => Some((*claim, *ttl, *queued)),
        _ => None,
    };
    let (claim, ttl, place) = queued_at
        .and_then(held)
        .or_else(|| (0..call.members()).find_map(held))
        .unwrap_or((0, None, None));
    Acquired::Taken {
        claim,
        ttl,
        queued: queued_at.map(|_| place.unwrap_or(QueuePlace::BEHIND)),
        sent_at,
        // The report of a single member grants nothing, so none is void.
        fences: request.claims.iter().map(|_| 0).collect(),
        retired,
    }
}
