//! Discovery of the masters: at first from the nodes that the URL names, later from all that are known.

use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClusterStore, migrating::down, slots::Slot};
use crate::store::{News, StoreError, Which, redis::errors::not_yet};

/// How long a new client waits for the other masters when one is connected.
const OTHERS: Duration = Duration::from_millis(250);
/// How long a node may take to reply, at first: a short patience finds the end of an outage sooner.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many nodes are asked at once.
const ASKED: usize = 3;
/// The first and the longest pause between two discoveries, while a master is missing.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl ClusterStore {
    /// Discovers the masters, and waits until one is connected, then briefly for the others.
    pub(super) async fn begin(&self, patience: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + patience;
        let seeds = self.nodes.seeds.addrs.clone();
        let layout = self.nodes.seeds.layout(seeds, patience).await?;
        self.nodes.adopt(layout)?;
        let masters = self.nodes.masters();
        let connecting = masters.iter().map(|node| Box::pin(node.store.until_up()));
        match timeout_at(until, select_ok(connecting)).await {
            Ok(Ok(((), others))) => {
                let _ = timeout_at(until.min(Instant::now() + OTHERS), join_all(others)).await;
                Ok(())
            }
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => {
                let reasons = masters.iter().map(|node| down(node).to_string());
                Err(not_yet(reasons.collect::<Vec<_>>().join("; ")))
            }
        }
    }

    /// Discovers the masters again whenever there is reason to, and for as long as one is missing.
    pub(super) async fn keep_discovering(&self) {
        let longest = self.nodes.options.connect_timeout;
        let (mut pause, mut patience) = (PAUSE, PATIENCE.min(longest));
        let mut is_warned = false;
        loop {
            if self.nodes.are_up() {
                self.nodes.rediscover.notified().await;
                (pause, patience) = (PAUSE, PATIENCE.min(longest));
            }
            if let Err(error) = self.discover(patience).await {
                tracing::debug!(%error, "no node says who has which slots");
                if self.nodes.fails(&error) && !std::mem::replace(&mut is_warned, true) {
                    let (address, reason) = (&self.nodes.seeds, error.to_string());
                    tracing::warn!(%address, reason, "the cluster cannot be reached yet");
                }
                patience = (patience * 2).min(longest);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn discover(&self, patience: Duration) -> Result<(), StoreError> {
        let addrs = fastrand::choose_multiple(self.nodes.known(), ASKED);
        let layout = self.nodes.seeds.layout(addrs, patience).await?;
        // Locks may be gone, and the former master tells waiters nothing.
        if let Some(changed) = self.nodes.adopt(layout)? {
            tracing::debug!("slots of the cluster have other masters");
            let which = Which::new(move |key| changed[Slot::of(key).index()]);
            (self.nodes.listener)(News::SomeChanged(which));
        }
        Ok(())
    }
}
