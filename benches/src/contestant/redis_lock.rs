//! The peer redis-lock. It runs a future inside a lock, waits by polling, and has no renewal.

use std::{sync::Arc, time::Duration};

use ::redis_lock::{LockAcrossOptions, lock_across};
use anyhow::{Result, anyhow};
use redis_of_redis_lock::{Client, aio::MultiplexedConnection};
use tokio::sync::Mutex;

use super::{BoxFuture, Contestant, Inside, RETRY, Seat, inside};

pub(super) struct RedisLock {
    connection: MultiplexedConnection,
    lease: Duration,
}

impl RedisLock {
    pub(super) async fn connect(url: &str, lease: Duration) -> Result<Self> {
        let client = Client::open(url)?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            lease,
        })
    }
}

impl Contestant for RedisLock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        // It holds its mutex for a whole round trip, so tasks that share one would take turns.
        let seat = RedisLockSeat {
            connections: [Arc::new(Mutex::new(self.connection.clone()))],
            key: key.to_owned(),
            lease: self.lease,
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RedisLockSeat {
    connections: [Arc<Mutex<MultiplexedConnection>>; 1],
    key: String,
    lease: Duration,
}

impl Seat for RedisLockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let options = LockAcrossOptions {
                ttl: self.lease,
                retry: RETRY,
                duration: Duration::from_secs(3600),
            };
            let body = async move { inside(stay) };
            let locked = lock_across(&self.connections, &self.key, body, options).await;
            // Its error may carry a panic, which cannot be shared between threads.
            locked.map_err(|error| anyhow!("{error}"))
        })
    }
}
