//! The cost of the locking protocol alone: the scripts of this framework, called by redis-rs with
//! its defaults, one lock at a time. Client tracking is on, but there are no subscribers, no
//! waiters and no renewals.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use redis::{Client, Value, aio::MultiplexedConnection};
use rlock_testkit::Scripts;

use super::{BoxFuture, Contestant, Inside, RETRY, Seat, inside, raw::milliseconds};

const CLIENT: &str = "8c2c0e5e-8b1f-4b9a-9d0f-1f2a3b4c5d6e";
const CHANNELS: &str = "lock:client:";
/// A minute (ms).
const FENCE_TTL: u64 = 60_000;

pub(super) struct BareScripts(Arc<Shared>);

struct Shared {
    connection: MultiplexedConnection,
    scripts: Scripts,
    lease: u64,
    owners: AtomicU64,
}

impl BareScripts {
    pub(super) async fn connect(url: &str, lease: Duration) -> Result<Self> {
        let client = Client::open(format!("{url}?protocol=resp3"))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON").arg("NOLOOP");
        tracking.exec_async(&mut connection).await?;
        Ok(Self(Arc::new(Shared {
            connection,
            scripts: Scripts::new(),
            lease: milliseconds(lease),
            owners: AtomicU64::new(1),
        })))
    }
}

impl Contestant for BareScripts {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = BareSeat {
            lock: format!("lock:{{bare:{key}}}"),
            connection: self.0.connection.clone(),
            shared: Arc::clone(&self.0),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct BareSeat {
    lock: String,
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

impl BareSeat {
    /// Acquires the lock, and returns whether it was free.
    async fn take(&mut self, owner: &str) -> Result<bool> {
        let shared = &self.shared;
        let mut call = shared.scripts.acquire.key(&self.lock);
        call.arg(shared.lease)
            .arg(FENCE_TTL + shared.lease)
            .arg(0)
            .arg(CHANNELS)
            .arg("first")
            .arg(0)
            .arg(owner);
        // A fence, or a list whose first element is the outcome, which is 1 for a grant.
        Ok(match call.invoke_async(&mut self.connection).await? {
            Value::BulkString(_) => true,
            Value::Array(reply) => reply.first() == Some(&Value::Int(1)),
            _ => false,
        })
    }

    async fn give_back(&mut self, owner: &str) -> Result<bool> {
        let mut call = self.shared.scripts.release.key(&self.lock);
        call.arg(owner)
            .arg(0)
            .arg(0)
            .arg(FENCE_TTL)
            .arg(CHANNELS)
            .arg("first")
            .arg(0);
        Ok(call.invoke_async(&mut self.connection).await?)
    }
}

impl Seat for BareSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let sequence = self.shared.owners.fetch_add(1, Ordering::Relaxed);
            let owner = format!("{CLIENT}:{sequence}");
            while !self.take(&owner).await? {
                tokio::time::sleep(RETRY).await;
            }
            let inside = inside(stay);
            let given_back = self.give_back(&owner).await?;
            ensure!(given_back, "the lock was gone");
            Ok(inside)
        })
    }
}
