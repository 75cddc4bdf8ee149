//! Redlock: what a majority of independent members grants is granted.
//!
//! A request goes to all members at once. A lease counts from before its request was sent. When a majority has granted
//! it, its remaining validity is the lease minus the time that passed and the drift of clocks.
//!
//! An owner that no majority grants the lock to is released at the members that did, and is not used again. The engine
//! then releases it on all members. A member executes the requests of a connection in their order. That release
//! therefore also ends a grant that comes late, and no earlier request follows it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;

use super::{
    QuorumStore,
    call::{Call, LateReplies, SHORTEST_LATE},
    spread,
    verdict::{majority, majority_has},
};
use crate::{
    few::Few,
    lease::Time,
    store::{
        AcquireRequest, Acquired, QueuePlace, ReleaseRequest, Released, Renewal, RenewalOutcome,
        Renewed, SendOptions, Store, StoreError, redis::RedisStore,
    },
};

/// The time-out of a rollback.
const ROLLBACK: Duration = Duration::from_millis(250);
/// How much a new fence exceeds the last known one at least, in units of 64 µs. Members whose last fence is larger set
/// no new one. The fences of a hold differ by less, unless the clocks of the members differ.
const FENCE_STEP: u64 = 1024;

impl QuorumStore {
    pub(super) async fn acquire_all(
        &self,
        request: AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let sent_at = self.clock.now();
        let decided = Arc::<AtomicBool>::default();
        let mut call = Call::to_all(&self.members, |member| {
            let (request, decided) = (request.clone(), Arc::clone(&decided));
            async move { member.acquire_unless(&decided, &request, send).await }
        });
        let within = decisive(send.timeout, request.lease);
        call.collect(within, SHORTEST_LATE, |call| {
            call.verdict(is_granted) == Some(true)
        })
        .await;
        decided.store(true, Ordering::Release);
        let mut granting = Vec::new();
        let outcome = match call.verdict(is_granted) {
            Some(true) => Ok(granted(&request, &call, sent_at)),
            Some(false) if request.count > 1 => Ok(Acquired::NotOwner),
            _ if request.count > 1 || !call.has_majority() => Err(call.error()),
            _ => {
                let oks = call.oks().filter(|(_, reply)| is_granted(reply));
                granting.extend(oks.map(|(member, _)| Arc::clone(member)));
                Ok(refusal(&request, &call, granting.len(), sent_at))
            }
        };
        LateReplies::follow(&self.late, call);
        roll_back(&request, &granting).await;
        outcome
    }

    pub(super) async fn release_all(
        &self,
        request: ReleaseRequest,
        send: SendOptions,
    ) -> Result<Released, StoreError> {
        // Members that are away get it when they are back, if that is soon.
        let mut call = Call::to_each(&self.members, |member| {
            let request = request.clone();
            async move {
                let reply = member.release(&request, send).await;
                let Some(error) = reply.as_ref().err().filter(|error| error.transient) else {
                    return reply;
                };
                // The next connection takes it.
                match member.release(&request, send).await {
                    Ok(Released::NotHeld) if error.maybe_executed => reply,
                    next => next,
                }
            }
        });
        let is_done = |reply: &Released| *reply == Released::Done;
        call.collect(send.timeout, SHORTEST_LATE, |call| {
            call.verdict(is_done).is_some()
        })
        .await;
        let outcome = match call.verdict(is_done) {
            Some(false) => Ok(Released::NotHeld),
            // Some members had lost the lock.
            None if !call.has_majority() => Err(call.error()),
            Some(true) | None => Ok(Released::Done),
        };
        LateReplies::follow(&self.late, call);
        outcome
    }

    pub(super) async fn renew_all(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<Renewed, StoreError> {
        let sent_at = self.clock.now();
        let asked: Arc<[Renewal]> = renewals.iter().map(with_step).collect();
        let mut call = Call::to_all(&self.members, |member| {
            let asked = Arc::clone(&asked);
            async move { member.renew(&asked, lease, send).await }
        });
        let holds = 0..renewals.len();
        call.collect(send.timeout, send.timeout / 4, |call| {
            holds.clone().all(|hold| is_held(call, hold).is_some())
        })
        .await;
        let renewed = if call.has_majority() {
            let kept = holds.map(|hold| outcome(&call, hold)).collect();
            Ok(Renewed { kept, sent_at })
        } else {
            Err(call.error())
        };
        LateReplies::follow(&self.late, call);
        renewed
    }
}

/// Returns the time within which replies decide about a lease. Later replies leave little of the lease.
fn decisive(timeout: Duration, lease: Duration) -> Duration {
    timeout.min((lease / 8).max(SHORTEST_LATE))
}

fn is_granted(reply: &Acquired) -> bool {
    matches!(reply, Acquired::Granted { .. })
}

/// Releases locks at the members that granted them.
async fn roll_back(request: &AcquireRequest, granting: &[Arc<RedisStore>]) {
    let send = SendOptions::new(ROLLBACK);
    let releases = granting.iter().flat_map(|member| {
        let releases = request.claims.iter().map(ReleaseRequest::whole);
        releases.map(move |release| async move { member.release(&release, send).await })
    });
    join_all(releases).await;
}

/// Returns the grant of a majority, with the largest fences of its members.
fn granted(request: &AcquireRequest, call: &Call<Acquired>, sent_at: Time) -> Acquired {
    let mut largest: Few<u64> = request.claims.iter().map(|_| 0).collect();
    let mut is_wanted = false;
    for (_, reply) in call.oks() {
        if let Acquired::Granted { fences, wanted, .. } = reply {
            is_wanted |= wanted;
            for (largest, fence) in largest.iter_mut().zip(fences) {
                *largest = (*largest).max(*fence);
            }
        }
    }
    Acquired::Granted {
        fences: largest,
        wanted: is_wanted,
        sent_at,
    }
}

/// Returns the refusal of the member with which a majority will be free, if the leases end in their order.
fn refusal(
    request: &AcquireRequest,
    call: &Call<Acquired>,
    granted: usize,
    sent_at: Time,
) -> Acquired {
    let mut refusals: Vec<(Duration, usize, Option<QueuePlace>)> = call
        .oks()
        .filter_map(|(_, reply)| match reply {
            Acquired::Taken {
                claim, ttl, queued, ..
            } => Some((ttl.unwrap_or(Duration::MAX), *claim, *queued)),
            _ => None,
        })
        .collect();
    refusals.sort_unstable_by_key(|(ttl, ..)| *ttl);
    let needed = majority(call.members()) - granted;
    let refusal = refusals.get(needed - 1).or(refusals.last());
    let (ttl, claim, queued) = refusal.copied().unwrap_or_default();
    Acquired::Taken {
        claim,
        // Waiters for the same lock ask at different times.
        ttl: (ttl < Duration::MAX).then(|| ttl + spread(1)),
        queued,
        sent_at,
        // No member grants the lock by a message, so no grant is void.
        fences: request.claims.iter().map(|_| 0).collect(),
        retired: granted > 0 || call.is_in_doubt(),
    }
}

/// Returns the renewal that the members get.
fn with_step(renewal: &Renewal) -> Renewal {
    let step = if renewal.fence > 0 { FENCE_STEP } else { 0 };
    Renewal {
        claim: renewal.claim.clone(),
        fence: renewal.fence + step,
    }
}

/// Returns whether a majority holds a lock of the batch, or `None` if that is open.
fn is_held(call: &Call<Renewed>, hold: usize) -> Option<bool> {
    call.verdict(|renewed| matches!(renewed.kept.get(hold), Some(RenewalOutcome::Held { .. })))
}

fn outcome(call: &Call<Renewed>, hold: usize) -> RenewalOutcome {
    match is_held(call, hold) {
        Some(true) => {}
        Some(false) => return RenewalOutcome::Lost,
        None => return RenewalOutcome::Unknown,
    }
    let (mut is_wanted, mut fences) = (false, Vec::new());
    for (_, renewed) in call.oks() {
        if let Some(RenewalOutcome::Held { wanted, fence }) = renewed.kept.get(hold) {
            is_wanted |= wanted;
            fences.push(*fence);
        }
    }
    RenewalOutcome::Held {
        wanted: is_wanted,
        fence: majority_has(fences, call.members()).unwrap_or(0),
    }
}
