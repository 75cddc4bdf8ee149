//! The peer rslock. It waits by polling, after random times up to the retry delay. `using` renews, but `acquire` does
//! not.

use std::{future::pending, time::Duration};

use ::rslock::LockManager;
use anyhow::Result;
use futures_util::future::try_join_all;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{BoxFuture, Contestant, Held, Holding, Inside, RETRY, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct Rslock {
    manager: LockManager,
    lease: Duration,
}

impl Rslock {
    pub(super) fn connect(urls: Vec<String>, lease: Duration) -> Self {
        let mut manager = LockManager::new(urls);
        manager.set_retry(u32::MAX, RETRY);
        Self { manager, lease }
    }

    /// Returns a lease that `using` renews as often as the other contestants do. It renews half a
    /// second before the end of the lease, less 1 % and two milliseconds.
    fn lease_of_using(&self) -> Duration {
        (self.lease / 3 + Duration::from_millis(500 + 2)) * 100 / 99
    }

    /// Returns a task that holds the lock, once it is held.
    async fn stay_inside(&self, key: &str) -> Result<JoinHandle<()>> {
        let (manager, key) = (self.manager.clone(), key.to_owned());
        let lease = self.lease_of_using();
        let (held, taken) = oneshot::channel();
        let stay = async move || {
            let _ = held.send(());
            pending::<()>().await;
        };
        let routine = tokio::spawn(async move {
            if let Err(error) = manager.using(key.as_bytes(), lease, stay).await {
                eprintln!("rslock lost {key}: {error}");
            }
        });
        taken.await?;
        Ok(routine)
    }
}

impl Contestant for Rslock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RslockSeat {
            manager: self.manager.clone(),
            key: format!("rslock:{key}"),
            lease: self.lease,
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut routines = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys.iter().map(|key| self.stay_inside(key));
                routines.extend(try_join_all(taking).await?);
            }
            Ok(Some(Box::new(Routines(routines)) as Held))
        })
    }
}

struct RslockSeat {
    manager: LockManager,
    key: String,
    lease: Duration,
}

impl Seat for RslockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let guard = self.manager.acquire(self.key.as_str(), self.lease).await?;
            let inside = inside(stay);
            guard.release().await;
            Ok(inside)
        })
    }
}

/// One task for each lock. Dropping this ends them.
struct Routines(Vec<JoinHandle<()>>);

impl Holding for Routines {
    fn lost(&self) -> usize {
        self.0
            .iter()
            .filter(|routine| routine.is_finished())
            .count()
    }
}

impl Drop for Routines {
    fn drop(&mut self) {
        for routine in &self.0 {
            routine.abort();
        }
    }
}
