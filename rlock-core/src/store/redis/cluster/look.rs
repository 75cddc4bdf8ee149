//! Learning who has which slots: at first from the nodes that the URL names, later from all that are known.

use std::{sync::Arc, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    ClusterStore, Slot,
    nodes::Node,
    unsettled::{down, passing},
};
use crate::store::{News, StoreError, Which};

/// How long a new client waits for the other masters when one is there.
const OTHERS: Duration = Duration::from_millis(250);
/// How long a node may take to say who has which slots, at first: a short patience finds the end of an
/// outage sooner.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many are asked for that at once.
const ASKED: usize = 3;
/// The pause between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest, while a node is missing.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
impl ClusterStore {
    /// Learns who has which slots, and waits for the first of them.
    pub(super) async fn begin(&self, patience: Duration) -> Result<(), StoreError> {
        let mut until = Instant::now() + patience;
        let seeds = self.nodes.seeds.places().to_vec();
        let layout = self.nodes.seeds.layout(seeds, patience).await?;
        self.nodes.adopt(layout)?;
        let owners = self.nodes.owners();
        let mut connecting: FuturesUnordered<_> = owners
            .iter()
            .map(|node| async { node.store.home.connection().await.map(drop) })
            .collect();
        let (mut is_up, mut refusal) = (false, None);
        while let Ok(Some(connected)) = timeout_at(until, connecting.next()).await {
            match connected {
                Ok(()) => {
                    is_up = true;
                    until = until.min(Instant::now() + OTHERS);
                }
                Err(error) => refusal = Some(error),
            }
        }
        match (is_up, refusal) {
            (true, _) => Ok(()),
            (false, Some(refusal)) => Err(refusal),
            (false, None) => Err(unreachable(&owners)),
        }
    }

    /// Looks who has which slots whenever there is reason to, and for as long as one of them is missing.
    pub(super) async fn keep_looking(&self) {
        let longest = self.nodes.connect_timeout();
        loop {
            self.nodes.suspects.notified().await;
            let mut pause = PAUSE;
            let mut patience = PATIENCE.min(longest);
            loop {
                if !self.look(patience).await {
                    patience = (patience * 2).min(longest);
                }
                sleep(pause).await;
                let owners = self.nodes.owners();
                if !owners.is_empty() && owners.iter().all(|node| node.store.home.is_up()) {
                    break;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Whether somebody said who has which slots.
    async fn look(&self, patience: Duration) -> bool {
        let mut places = self.nodes.known();
        fastrand::shuffle(&mut places);
        places.truncate(ASKED);
        let layout = self.nodes.seeds.layout(places, patience).await;
        let is_told = layout.is_ok();
        match layout.and_then(|layout| self.nodes.adopt(layout)) {
            // Locks may be gone, and what waits at the former owner is told nothing.
            Ok(Some(changed)) => {
                tracing::debug!("slots of the cluster have other owners");
                let which = Which::new(move |key| changed[Slot::of(key).index()]);
                (self.listener)(News::SomeChanged(which));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "no node says who has which slots");
                let (seeds, reason) = (&self.nodes.seeds, error.to_string());
                if self.nodes.fails(error) {
                    tracing::warn!(address = %seeds, reason, "the cluster cannot be reached yet");
                }
            }
        }
        is_told
    }
}

fn unreachable(owners: &[Arc<Node>]) -> StoreError {
    let reasons: Vec<String> = owners.iter().map(|node| down(node).to_string()).collect();
    passing(reasons.join("; "))
}
