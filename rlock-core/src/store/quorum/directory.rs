//! Implements `Directory` on a quorum: lists its clients and locks, and carries messages between its clients through any
//! member. A client listens at every member, and a lock is on a majority of them.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

use super::{QuorumStore, call::QuorumCall};
use crate::store::{
    ReplyFuture,
    directory::{Cursor, Directory, Page},
    retry_within,
};

impl Directory for QuorumStore {
    fn databases(&self) -> String {
        let each = self.members.iter().map(|member| member.databases());
        let mut each: Vec<String> = each.collect();
        if each.iter().all(|database| *database == each[0]) {
            each.truncate(1);
        }
        each.join(",")
    }

    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            let mut call = QuorumCall::to_all(&self.members, |member| {
                let message = message.clone();
                async move { member.publish(client, message, timeout).await }
            });
            let is_received =
                |call: &QuorumCall<bool>| call.oks().any(|(_, is_received)| *is_received);
            call.collect(timeout, is_received).await;
            if is_received(&call) {
                return Ok(true);
            }
            call.needs_majority().map(|()| false)
        })
    }

    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        Box::pin(retry_within(timeout, move |remaining| async move {
            let mut call = QuorumCall::to_each(&self.members, move |member| async move {
                member.clients(remaining).await
            });
            // Wait for all members, because a client may not be connected to each.
            call.collect(remaining, QuorumCall::lacks_majority).await;
            call.needs_majority()?;
            let clients = call.oks().flat_map(|(_, clients)| clients.iter().copied());
            let clients: HashSet<Uuid> = clients.collect();
            Ok(clients.into_iter().collect())
        }))
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let mut call = QuorumCall::to_all(&self.members, move |member| async move {
                member.address(client, timeout).await
            });
            let known = |call: &QuorumCall<Option<String>>| {
                call.oks().find_map(|(_, address)| address.clone())
            };
            call.collect(timeout, |call| known(call).is_some()).await;
            let known = known(&call);
            known.map_or_else(
                || call.needs_majority().map(|()| None),
                |known| Ok(Some(known)),
            )
        })
    }

    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(retry_within(timeout, move |remaining| async move {
            let until = Instant::now() + remaining;
            let mut call = QuorumCall::to_each(&self.members, |member| async move {
                member.until_replying().await;
                Ok(())
            });
            call.collect(remaining, QuorumCall::has_majority).await;
            call.needs_majority()?;
            let next_server = from.next_server(self.members.len());
            let member = &self.members[from.server];
            if !member.is_up() {
                // Its locks are on other members, too.
                return Ok((Vec::new(), next_server));
            }
            let remaining = until.saturating_duration_since(Instant::now());
            let (keys, next) = member.scan(from, remaining).await?;
            Ok((keys, next.or(next_server)))
        }))
    }
}
