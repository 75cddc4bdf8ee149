//! Acquires locks of several slots, all or none: slot by slot, in the order that all clients use. No script reaches
//! them all, so they are acquired slot by slot, in the same order by every client: no client waits while it holds
//! what another may want.

use futures_util::future::try_join_all;
use redis::cmd;
use rlock_proto::{
    few::Few,
    key::Key,
    lease::Time,
    store::{AcquireRequest, Acquired, Change, Claim, HashSlot, ReleaseRequest},
};

use super::{ClusterStore, Needs};
use crate::store::{SendOptions, Store, StoreError};

impl ClusterStore {
    /// Acquires locks of any slots. If another owner holds one, releases those that were granted before and leaves
    /// the wait queues of the others, where the lock may have been handed to this owner by now.
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
            let others = first_sent.is_some();
            let mut reply = reply.map_err(|error| in_doubt(error, others))?;
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
                    claim,
                    fences: some,
                    ..
                } => {
                    let mut all = self.leave_all_but(group, claims, fences, left()).await?;
                    for (at, fence) in group.iter().zip(&*some) {
                        all[*at] = *fence;
                    }
                    (*claim, *some) = (group[*claim], all);
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

    /// Releases or leaves the locks of all other groups. Returns their fences: grants up to these are void.
    async fn leave_all_but(
        &self,
        group: &[usize],
        claims: &[Claim],
        granted: Few<u64>,
        send: SendOptions,
    ) -> Result<Few<u64>, StoreError> {
        let leave = async |(at, (claim, fence)): (usize, (&Claim, u64))| {
            if group.contains(&at) {
                return Ok(fence);
            }
            let release = Change::Release(ReleaseRequest::of(claim));
            self.apply(&release, send).await?;
            match fence {
                0 => self.fence(&claim.key, send).await,
                fence => Ok(fence),
            }
        };
        let left = try_join_all(claims.iter().zip(granted).enumerate().map(leave)).await;
        // What was not released still belongs to the owners.
        left.map(Few::from_vec)
            .map_err(|error| in_doubt(error, true))
    }

    /// Returns the last fence of a lock, or 0 if the server has none.
    async fn fence(&self, key: &Key, send: SendOptions) -> Result<u64, StoreError> {
        self.at_master(key, Needs::Lock, send, |node, send| async move {
            let mut get = cmd("GET");
            let lock = node.store.commands.keyspace.lock(key);
            get.arg(format!("{lock}:fence"));
            let fence: Option<u64> = node.store.ask(&get, send).await?;
            Ok(fence.unwrap_or(0))
        })
        .await
    }
}

/// Marks an error as ambiguous if other locks may have been granted, or not released.
fn in_doubt(error: StoreError, others: bool) -> StoreError {
    StoreError {
        maybe_executed: error.maybe_executed || others,
        ..error
    }
}
