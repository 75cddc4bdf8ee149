//! The proxies of servers whose addresses clients learn from the servers, and their faults.
//!
//! All clients connect through them, and so do Sentinels and replicas.

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

/// The proxies of the servers, which all clients share.
#[derive(Clone, Debug)]
pub(super) struct Fronts {
    pub(super) proxies: Vec<Arc<Proxy>>,
    /// The current master, if Sentinels name it.
    pub(super) master: Option<Arc<Server>>,
}

/// Applies one fault after the other until the run ends. Never two at once, because each resets the
/// proxy.
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
