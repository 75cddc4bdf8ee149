//! Releases on all members, also on those that are away.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    QuorumStore,
    call::{QuorumCall, Wait},
    detached::deliver,
    queueing::lead,
    verdict::Verdict,
};
use crate::store::{ReleaseRequest, Released, StoreError};

impl QuorumStore {
    pub(super) async fn release_on_all(
        &self,
        request: ReleaseRequest,
        timeout: Duration,
    ) -> Result<Released, StoreError> {
        let lead = lead(&self.members);
        let mut call = QuorumCall::to_all(&self.members, |member, _| {
            let request = request.clone();
            async move { member.release(&request, member.timeout).await }
        });
        let hands_off = request.count == 0 && request.at_least.is_zero();
        let until = Instant::now() + timeout;
        call.collect(until, |call| {
            let waits = match call.verdict(is_done) {
                Verdict::Open => true,
                // The lead hands the lock to its first waiter. Until it has, a newcomer could overtake that waiter.
                Verdict::Yes | Verdict::Split => hands_off && call.awaits(lead),
                Verdict::No | Verdict::TooFew => false,
            };
            if waits {
                call.wait_for_majority()
            } else {
                Wait::Over
            }
        })
        .await;
        let outcome = match call.verdict(is_done) {
            Verdict::Yes | Verdict::Split => Ok(Released::Done),
            Verdict::No => Ok(Released::NotHeld),
            Verdict::TooFew | Verdict::Open => Err(call.error()),
        };
        let lead_lacks_it = matches!(call.reply(lead), Some(Ok(reply)) if !is_done(reply));
        // After an error the caller releases again. A count that is lowered is set right by the next change.
        if outcome.is_ok() && request.count == 0 {
            self.deliver_to_rest(&request, call);
        } else {
            self.detach(call);
        }
        if matches!(outcome, Ok(Released::Done)) && hands_off && lead_lacks_it {
            self.wake_waiter(lead, &request.key).await;
        }
        outcome
    }

    /// Has every member carry out a release: those that failed, and those that fail later.
    fn deliver_to_rest(&self, request: &ReleaseRequest, call: QuorumCall<Released>) {
        for (member, error) in call.failures() {
            if error.transient {
                let delivered = deliver(Arc::clone(member), request.clone());
                self.detached[member.number].follow(delivered);
            }
        }
        for reply in call.decide() {
            let (member, request) = (Arc::clone(&self.members[reply.member]), request.clone());
            self.detached[member.number].follow(async move {
                if let (_, Err(error)) = reply.await
                    && error.transient
                {
                    deliver(member, request).await;
                }
            });
        }
    }
}

fn is_done(released: &Released) -> bool {
    *released == Released::Done
}
