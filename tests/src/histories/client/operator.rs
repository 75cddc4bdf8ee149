//! An operator who inspects locks, lists them, and asks holders to release.
//!
//! A holder keeps its lock until its body has stopped, so every property still holds.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{Phase, clients::Clients};

/// Acts at random during the run. Servers may be down, so every outcome is accepted.
pub(super) async fn act(
    clients: Arc<Clients>,
    phase: watch::Receiver<Phase>,
    keys: u32,
    mut rng: Rng,
) {
    while *phase.borrow() == Phase::Work {
        sleep(Duration::from_millis(rng.u64(20..400))).await;
        let client = clients.at(rng.usize(..clients.number()));
        let key = format!("k{}", rng.u32(..keys));
        // Some calls are cancelled.
        let limit = Duration::from_micros(rng.u64(50..1_000_000));
        let _ = match rng.u8(..10) {
            0..5 => timeout(limit, client.revoke(&key)).await.map(drop),
            5..8 => timeout(limit, client.inspect(&key)).await.map(drop),
            _ => {
                let all = async {
                    let mut list = client.list("k*").scan(rng.bool());
                    while let Ok(Some(_)) = list.try_next().await {}
                };
                timeout(limit, all).await
            }
        };
    }
}
