//! Acquires locks of several slots: slot by slot, in the order that all clients use, because no script reaches them all and calls in
//! different orders would block each other. If one lock is taken, or its master fails, the client releases the others.

use rlock_proto::{
    few::Few,
    lease::Time,
    store::{AcquireRequest, Acquired, HashSlot},
};

use super::ClusterStore;
use crate::store::{SendOptions, StoreError};

impl ClusterStore {
    /// Acquires locks of any slots. If another owner holds one, replies that the owners may have all locks of the other slots, so
    /// the client releases those and leaves their queues. An error names the locks that were granted before.
    pub(super) async fn acquire_across(
        &self,
        request: &AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let (claims, clock) = (&request.claims, &self.nodes.options.clock);
        let until = clock.now() + send.timeout;
        let left = || SendOptions {
            timeout: until.since(clock.now()),
            ..send
        };
        let slot = |at: &usize| HashSlot::of(&claims[*at].key);
        let mut order: Vec<usize> = (0..claims.len()).collect();
        order.sort_by_key(slot);
        let mut fences: Few<u64> = claims.iter().map(|_| 0).collect();
        let (mut first_sent, mut any_wanted): (Option<Time>, bool) = (None, false);
        for group in order.chunk_by(|one, next| slot(one) == slot(next)) {
            let some = AcquireRequest {
                claims: group.iter().map(|at| claims[*at].clone()).collect(),
                ..request.clone()
            };
            let reply = self.acquire_in(&some, left()).await;
            let mut reply = reply.map_err(|error| StoreError {
                granted: (0..claims.len()).filter(|at| fences[*at] > 0).collect(),
                ..error
            })?;
            match &mut reply {
                Acquired::Granted {
                    fences: some,
                    wanted,
                    sent_at,
                } => {
                    any_wanted |= *wanted;
                    first_sent = first_sent.or(Some(*sent_at));
                    for (at, fence) in group.iter().zip(some) {
                        fences[*at] = *fence;
                    }
                }
                Acquired::Taken {
                    claim, past_fences, ..
                } => {
                    let mut all: Few<Option<u64>> = claims.iter().map(|_| None).collect();
                    for (at, past_fence) in group.iter().zip(&*past_fences) {
                        all[*at] = *past_fence;
                    }
                    (*claim, *past_fences) = (group[*claim], all);
                    return Ok(reply);
                }
                Acquired::Outdated => return Ok(reply),
            }
        }
        Ok(Acquired::Granted {
            fences,
            wanted: any_wanted,
            sent_at: first_sent.unwrap_or_else(|| clock.now()),
        })
    }
}
