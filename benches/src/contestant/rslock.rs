//! rslock. It waits by polling, at random moments within the retry delay; `acquire` does not renew,
//! `using` does.

use std::time::Duration;

use ::rslock::LockManager;
use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{BoxFuture, Contestant, Inside, LEASE, RETRY, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Rslock(LockManager);

impl Rslock {
    pub(super) fn connect(url: &str) -> Self {
        let mut manager = LockManager::new(vec![url]);
        manager.set_retry(u32::MAX, RETRY);
        Self(manager)
    }
}

impl Contestant for Rslock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RslockSeat {
            manager: self.0.clone(),
            key: format!("rslock:{key}"),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RslockSeat {
    manager: LockManager,
    key: String,
}

impl Seat for RslockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let guard = self.manager.acquire(self.key.as_str(), LEASE).await?;
            let inside = inside(stay);
            guard.release().await;
            Ok(inside)
        })
    }
}

/// `using` renews half a second before the lease less its drift ends: with this lease that is each
/// second.
const LEASE_RENEWED_EACH_SECOND: Duration = Duration::from_millis(1517);

/// Aborts its tasks, one for each lock.
pub(super) struct Routines(Vec<JoinHandle<()>>);

impl Drop for Routines {
    fn drop(&mut self) {
        for routine in &self.0 {
            routine.abort();
        }
    }
}

pub(super) async fn hold(url: &str, keys: &[String]) -> Result<Routines> {
    let manager = LockManager::new(vec![url]);
    let routines = stream::iter(keys)
        .map(|key| {
            let (manager, key) = (manager.clone(), format!("rslock:{key}"));
            let (held, taken) = oneshot::channel();
            let routine = tokio::spawn(async move {
                let stay = async move || {
                    let _ = held.send(());
                    std::future::pending::<()>().await;
                };
                let lease = LEASE_RENEWED_EACH_SECOND;
                if let Err(error) = manager.using(key.as_bytes(), lease, stay).await {
                    eprintln!("rslock lost {key}: {error}");
                }
            });
            async move { taken.await.map(|()| routine) }
        })
        .buffer_unordered(TAKEN_AT_ONCE)
        .try_collect()
        .await?;
    Ok(Routines(routines))
}
