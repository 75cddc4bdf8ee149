//! The peer async-redis-lock. It waits by polling, and renews in a task for each lock.

use std::time::Duration;

use ::async_redis_lock::{Lock, Locker, Options};
use anyhow::Result;
use futures_util::future::try_join_all;

use super::{BoxFuture, Contestant, Held, Holding, Inside, RETRY, Seat, TAKEN_AT_ONCE, inside};

pub(super) struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

impl AsyncRedisLock {
    pub(super) async fn connect(url: &str, lease: Duration) -> Result<Self> {
        let options = Options::new().ttl(lease).extend(lease / 3);
        Ok(Self {
            locker: Locker::from_redis_url(url).await?,
            options: options.retry(RETRY).timeout(None),
        })
    }
}

impl Contestant for AsyncRedisLock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = AsyncRedisLockSeat {
            locker: self.locker.clone(),
            key: format!("async-redis-lock:{key}"),
            options: self.options.clone(),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async move {
            let mut locks = Vec::with_capacity(keys.len());
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys
                    .iter()
                    .map(|key| self.locker.acquire_with_options(&self.options, key));
                locks.extend(try_join_all(taking).await?);
            }
            Ok(Some(Box::new(locks) as Held))
        })
    }
}

impl Holding for Vec<Lock> {}

struct AsyncRedisLockSeat {
    locker: Locker,
    key: String,
    options: Options,
}

impl Seat for AsyncRedisLockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let taking = self.locker.acquire_with_options(&self.options, &self.key);
            let lock = taking.await?;
            let inside = inside(stay);
            lock.release().await?;
            Ok(inside)
        })
    }
}
