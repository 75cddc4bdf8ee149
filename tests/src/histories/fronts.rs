//! The proxies before servers whose addresses clients learn from the servers: all clients come by them, and
//! Sentinels and replicas too. And what befalls them.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;

use super::{
    collect::Recorder,
    network,
    outage::{self, Server},
    record::FaultKind,
    schedule::Lane,
    steps::Steps,
};
use rlock_testkit::Proxy;

/// The ways of everybody to each of the servers.
#[derive(Clone, Debug)]
pub(super) struct Fronts {
    pub(super) proxies: Vec<Arc<Proxy>>,
    /// Whichever of them is the master, where Sentinels say so.
    pub(super) master: Option<Arc<Server>>,
}

/// Strikes one fault after the other, until the run is over. No two at once: each ends what a proxy was told
/// before.
pub(super) async fn strike(
    fronts: Fronts,
    lane: Lane,
    recorder: Recorder,
    over: watch::Receiver<bool>,
) {
    let mut steps = Steps::new(lane, over);
    while let Some(step) = steps.next().await {
        match (&fronts.master, step.kind) {
            (Some(master), FaultKind::MasterCutOff | FaultKind::MasterUnseen) => {
                outage::strike_and_note(master, None, &step, &recorder).await;
            }
            (master, _) => {
                let struck = step.servers.iter().map(|n| {
                    network::strike_and_note(
                        &fronts.proxies[*n],
                        (None, Some(*n)),
                        &step,
                        &recorder,
                    )
                });
                join_all(struck).await;
                if let Some(master) = master {
                    outage::note_replacement(master, &recorder).await;
                }
            }
        }
    }
}
