//! Implements `Directory` on a cluster: lists its clients and locks, and carries messages between its clients. A client
//! listens at every master.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    future::{join_all, try_join_all},
    stream::FuturesUnordered,
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{ClusterStore, nodes::Node};
use crate::store::{
    ReplyFuture, StoreError,
    directory::{Cursor, Directory, Page, first_known},
};

/// How long one master may take. Every master of the cluster delivers a message.
const ONE: Duration = Duration::from_millis(250);

impl ClusterStore {
    /// Returns the masters in the order of their addresses.
    pub(super) async fn known_masters(
        &self,
        timeout: Duration,
    ) -> Result<Vec<Arc<Node>>, StoreError> {
        self.nodes.until_known(Instant::now() + timeout).await?;
        let mut masters = self.nodes.masters();
        masters.sort_by_cached_key(|node| node.addr.to_string());
        Ok(masters)
    }

    /// Waits for a connection to any master, and returns the masters to which there is one.
    async fn masters_up(&self, timeout: Duration) -> Result<Vec<Arc<Node>>, StoreError> {
        let until = Instant::now() + timeout;
        let mut masters = self.known_masters(timeout).await?;
        let up = masters.iter().map(|node| node.store.until_replying());
        let mut up: FuturesUnordered<_> = up.collect();
        if timeout_at(until, up.next()).await.is_err() {
            return Err(masters[0].store.why_down());
        }
        drop(up);
        masters.retain(|node| node.store.is_up());
        Ok(masters)
    }
}

impl Directory for ClusterStore {
    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            let mut outcome = Ok(false);
            // The client may not be connected to each master at the moment.
            for node in self.masters_up(timeout).await? {
                outcome = (node.store)
                    .publish(client, message.clone(), timeout.min(ONE))
                    .await;
                if let Ok(true) = outcome {
                    break;
                }
            }
            outcome
        })
    }

    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let until = Instant::now() + timeout;
            let masters = self.masters_up(timeout).await?;
            let left = until.saturating_duration_since(Instant::now());
            let each = masters.iter().map(|node| node.store.clients(left));
            let each = try_join_all(each).await?;
            let clients: HashSet<Uuid> = each.into_iter().flatten().collect();
            Ok(clients.into_iter().collect())
        })
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let masters = self.masters_up(timeout).await?;
            let each = masters
                .iter()
                .map(|node| node.store.address(client, timeout));
            first_known(join_all(each).await)
        })
    }

    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(async move {
            let masters = self.known_masters(timeout).await?;
            let Some(node) = masters.get(from.server) else {
                return Ok((Vec::new(), None));
            };
            let (keys, next) = node.store.scan(from, timeout).await?;
            Ok((keys, next.or_else(|| from.next_server(masters.len()))))
        })
    }
}
