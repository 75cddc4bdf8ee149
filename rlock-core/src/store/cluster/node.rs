//! One node of a cluster.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::Notify, time::Instant};

use super::slots::NodeAddr;
use crate::store::redis::{RedisStore, dial::AbortOnDrop};

/// A node and its connections, which end with it.
pub(super) struct Node {
    pub(super) addr: NodeAddr,
    pub(super) id: String,
    pub(super) store: Arc<RedisStore>,
    pub(super) made: Instant,
    keeper: AbortOnDrop,
}

impl Node {
    /// Returns a node whose connections are kept up on this runtime.
    pub(super) fn start(
        addr: &NodeAddr,
        id: &str,
        store: Arc<RedisStore>,
        rediscover: Arc<Notify>,
        background: &Handle,
    ) -> Self {
        let keeper = background.spawn(keep(Arc::clone(&store), rediscover));
        Self {
            addr: addr.clone(),
            id: id.to_owned(),
            store,
            made: Instant::now(),
            keeper: AbortOnDrop::new(&keeper),
        }
    }

    /// Ends the node's connections.
    pub(super) fn stop(&self) {
        self.keeper.abort();
    }
}

async fn keep(store: Arc<RedisStore>, rediscover: Arc<Notify>) {
    // If this fails, the rest connects.
    let _ = store.background.connect().await;
    // Another node may have taken the place of one that is silent, whose connection never breaks.
    let suspect = async {
        loop {
            store.background.until(true).await;
            store.background.until(false).await;
            rediscover.notify_one();
        }
    };
    tokio::join!(store.keep_up(), suspect);
}
