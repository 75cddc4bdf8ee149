//! Redlock: acquires at all members, rolls the grants of a minority back, and restores locks at members that lack
//! them.
//!
//! A request goes to all members at once. A lease counts from before its request was sent. When a majority has granted
//! it, its remaining validity is the lease minus the time that passed and the drift of clocks.
//!
//! An owner that no majority grants the lock to is released at the members that did, and is not used again. The engine
//! then releases it on all members. A member executes the requests of a connection in their order. That release
//! therefore also ends a grant that comes late, and no earlier request follows it.
//!
//! If a majority has renewed a lock, each member that lacks it restores it. So the lock does not depend on the members
//! that granted it first: each of them may fail once the others have the lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use rlock_proto::{
    quorum::{
        acquired, applied, decisive, is_acquired, is_applied, is_granted, is_held, renewed,
        to_restore,
    },
    store::{AcquireRequest, Acquired, Applied, Change, ReleaseRequest, Renewal, Renewed},
};

use super::{
    IsHeld, QuorumStore,
    call::{LateReplies, QuorumCall},
};
use crate::store::{SendOptions, Store, StoreError, redis::RedisStore};

/// The time-out of a rollback.
const ROLLBACK: Duration = Duration::from_millis(250);

impl QuorumStore {
    pub(super) async fn acquire_all(
        &self,
        request: AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let sent_at = self.clock.now();
        let decided = Arc::<AtomicBool>::default();
        let mut call = QuorumCall::to_all(&self.members, |member| {
            let (request, decided) = (request.clone(), Arc::clone(&decided));
            async move { member.acquire_unless(&decided, &request, send).await }
        });
        let within = decisive(send.timeout, request.lease);
        call.collect(within, |call| is_acquired(&call.votes()) == Some(true))
            .await;
        decided.store(true, Ordering::Release);
        let outcome = acquired(
            &request,
            &call.votes(),
            call.is_in_doubt(),
            sent_at,
            fastrand::f64,
        );
        let outcome = outcome.ok_or_else(|| call.error());
        if let Ok(Acquired::Granted { fences, .. }) = &outcome {
            // Only what a majority granted: the clock of a single server may be far ahead.
            fences.iter().for_each(|fence| self.floor.note(*fence));
        }
        let mut granting = Vec::new();
        if let Ok(Acquired::Taken { .. }) = outcome {
            let oks = call.oks().filter(|(_, reply)| is_granted(reply));
            granting.extend(oks.map(|(member, _)| Arc::clone(member)));
        }
        LateReplies::follow(&self.late, call);
        roll_back(&request, &granting).await;
        outcome
    }

    pub(super) async fn apply_all(
        &self,
        change: Change,
        send: SendOptions,
    ) -> Result<Applied, StoreError> {
        let is_count = matches!(change, Change::SetCount(_));
        // Members that are away get it when they are back, if that is soon.
        let mut call = QuorumCall::to_each(&self.members, |member| {
            let change = change.clone();
            async move {
                let reply = member.apply(&change, send).await;
                // A later count might overtake the repetition.
                if is_count {
                    return reply;
                }
                let Some(error) = reply.as_ref().err().filter(|error| error.transient) else {
                    return reply;
                };
                // The next connection takes it.
                match member.apply(&change, send).await {
                    Ok(Applied::NotHeld) if error.maybe_executed => reply,
                    next => next,
                }
            }
        });
        call.collect(send.timeout, |call| is_applied(&call.votes()).is_some())
            .await;
        let outcome = applied(&call.votes(), is_count).ok_or_else(|| call.error());
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
        let asked: Arc<[Renewal]> = renewals.into();
        let mut call = QuorumCall::to_all(&self.members, |member| {
            let asked = Arc::clone(&asked);
            async move { member.renew(&asked, lease, send).await }
        });
        let holds = 0..renewals.len();
        call.late = send.timeout / 4;
        call.collect(send.timeout, |call| {
            let votes = call.votes();
            holds.clone().all(|hold| is_held(&votes, hold).is_some())
        })
        .await;
        let outcome = call.needs_majority().map(|()| {
            let votes = call.votes();
            let kept = holds.map(|hold| renewed(&votes, hold)).collect();
            Renewed { kept, sent_at }
        });
        if let Ok(outcome) = outcome.clone() {
            // Without a lease to set, the lock ends with the present one.
            let lease = if lease.is_zero() { send.timeout } else { lease };
            let (is_held, outcome) = (Arc::clone(&self.is_held), Arc::new(outcome));
            LateReplies::follow_replies(&self.late, call, move |member, reply| {
                let lacking = to_restore(&asked, &outcome, reply);
                let (member, is_held) = (Arc::clone(member), Arc::clone(&is_held));
                let restored = || restore(member, lacking.clone(), lease, is_held, send).boxed();
                (!lacking.is_empty()).then(restored)
            });
        } else {
            LateReplies::follow(&self.late, call);
        }
        outcome
    }
}

/// Makes a member restore the locks that this client still has, unless it has lost its connection. The member refuses the
/// lock of an owner that it has released since. If this fails, the next renewal tries again.
async fn restore(
    member: Arc<RedisStore>,
    mut lacking: Vec<Renewal>,
    lease: Duration,
    is_held: IsHeld,
    send: SendOptions,
) {
    lacking.retain(|renewal| is_held(&renewal.claim));
    if lacking.is_empty() || !member.is_connected() {
        return;
    }
    if let Ok(restored @ 1..) = member.restore(&lacking, lease, send).await {
        let server = member.describe();
        tracing::debug!(%server, locks = restored, "restored locks that a server of the quorum lacked");
    }
}

/// Releases locks at the members that granted them.
async fn roll_back(request: &AcquireRequest, granting: &[Arc<RedisStore>]) {
    let send = SendOptions::new(ROLLBACK);
    let releases = granting.iter().flat_map(|member| {
        let releases = request.claims.iter().map(ReleaseRequest::of);
        let releases = releases.map(Change::Release);
        releases.map(move |release| async move { member.apply(&release, send).await })
    });
    join_all(releases).await;
}
