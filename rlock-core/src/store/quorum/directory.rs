//! The clients and the locks of a quorum. A client listens at every member, and a lock is on a majority of them.

use std::{collections::HashSet, time::Duration};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use uuid::Uuid;

use super::{QuorumStore, verdict::majority};
use crate::store::{
    ReplyFuture, StoreError,
    directory::{Cursor, Directory, Page, first_known},
};

impl Directory for QuorumStore {
    fn databases(&self) -> String {
        let each = self.members.iter().map(|member| member.store.databases());
        let mut each: Vec<String> = each.collect();
        if each.iter().all(|database| *database == each[0]) {
            each.truncate(1);
        }
        each.join(",")
    }

    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            // At once, because one that has just failed may keep its caller for the whole time.
            let healthy = self.members.iter().filter(|member| member.is_healthy());
            let publish =
                healthy.map(|member| member.store.publish(client, message.clone(), timeout));
            let mut replies: FuturesUnordered<_> = publish.collect();
            let mut outcome = Ok(false);
            while let Some(reply) = replies.next().await {
                match reply {
                    Ok(true) => return Ok(true),
                    // Another member may reach the client.
                    Ok(false) => {}
                    Err(error) => outcome = Err(error),
                }
            }
            outcome
        })
    }

    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let well = self.members.iter().filter(|member| member.is_healthy());
            let each = join_all(well.map(|member| member.store.clients(timeout))).await;
            let (replies, errors): (Vec<_>, Vec<_>) = each.into_iter().partition(Result::is_ok);
            if replies.is_empty() {
                let refused = errors.into_iter().find_map(Result::err);
                return Err(refused.unwrap_or_else(StoreError::no_majority));
            }
            let clients: HashSet<Uuid> = replies.into_iter().flatten().flatten().collect();
            Ok(clients.into_iter().collect())
        })
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let well = self.members.iter().filter(|member| member.is_healthy());
            let each = well.map(|member| member.store.address(client, timeout));
            first_known(join_all(each).await)
        })
    }

    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(async move {
            self.members[0].store.fork_guard.check()?;
            let (members, server) = (self.members.len(), from.server);
            let well = || self.members.iter().filter(|member| member.is_healthy());
            if well().count() < majority(members) {
                return Err(StoreError::no_majority());
            }
            let next_server = from.next_server(members);
            let Some(member) = well().find(|member| member.number == server) else {
                // A lock that it has is on others, too.
                return Ok((Vec::new(), next_server));
            };
            let (keys, next) = member.store.scan(from, timeout).await?;
            Ok((keys, next.or(next_server)))
        })
    }
}
