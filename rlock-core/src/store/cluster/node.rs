//! One node of a cluster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};

use super::slots::{NodeAddr, Slot};
use crate::store::redis::{RedisStore, dial::AbortOnDrop};

/// After this time, an import from the same node may be another one: the node may have lost grants in between.
const IMPORT: Duration = Duration::from_secs(1);

/// A node and its connections, which end with it.
pub(super) struct Node {
    pub(super) addr: NodeAddr,
    pub(super) id: String,
    pub(super) store: Arc<RedisStore>,
    pub(super) made: Instant,
    /// From which node each slot was imported last, and when this node was asked for its time because of that.
    imports: Mutex<HashMap<Slot, (String, Instant)>>,
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
            imports: Mutex::default(),
            keeper: AbortOnDrop::new(&keeper),
        }
    }

    /// Ends the node's connections.
    pub(super) fn stop(&self) {
        self.keeper.abort();
    }

    /// Records a slot that the node imports. Does not ask the node for its time again for a while: otherwise
    /// concurrent requests for the slot would keep each other from finishing.
    pub(super) fn imports(&self, slot: Slot, exporter: &Self) {
        let imports = || self.imports.lock().unwrap_or_else(PoisonError::into_inner);
        let has_asked =
            |(id, asked_at): &(String, Instant)| *id == exporter.id && asked_at.elapsed() < IMPORT;
        if !imports().get(&slot).is_some_and(has_asked) {
            self.store.record_slots();
            imports().insert(slot, (exporter.id.clone(), Instant::now()));
        }
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
