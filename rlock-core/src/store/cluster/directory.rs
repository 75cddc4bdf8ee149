//! The clients and the locks of a cluster. A client listens at every master.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;
use uuid::Uuid;

use super::{ClusterStore, node::Node, routing::down};
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
}

impl Directory for ClusterStore {
    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            let until = Instant::now() + timeout;
            let masters = self.known_masters(timeout).await?;
            let mut outcome = Ok(false);
            // The client, or this one, may not be connected to each master at the moment.
            for node in masters.iter().filter(|node| node.store.is_up()) {
                let left = until.saturating_duration_since(Instant::now());
                outcome = node
                    .store
                    .publish(client, message.clone(), left.min(ONE))
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
            let masters = self.known_masters(timeout).await?;
            let up = masters.iter().filter(|node| node.store.is_up());
            let each = try_join_all(up.map(|node| node.store.clients(timeout))).await?;
            let clients: HashSet<Uuid> = each.into_iter().flatten().collect();
            Ok(clients.into_iter().collect())
        })
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let masters = self.known_masters(timeout).await?;
            let up = masters.iter().filter(|node| node.store.is_up());
            let each = join_all(up.map(|node| node.store.address(client, timeout))).await;
            first_known(each)
        })
    }

    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(async move {
            let masters = self.known_masters(timeout).await?;
            let Some(node) = masters.get(from.server) else {
                return Ok((Vec::new(), None));
            };
            if !node.store.is_up() {
                return Err(down(node));
            }
            let (keys, next) = node.store.scan(from, timeout).await?;
            Ok((keys, next.or_else(|| from.next_server(masters.len()))))
        })
    }
}
