//! async-redis-lock. It waits by polling, and renews by a task for each lock.

use std::time::Duration;

use ::async_redis_lock::{Lock, Locker, Options};
use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    BoxFuture, Contestant, IDLE_LEASE, IDLE_RENEWAL, Inside, LEASE, RETRY, Seat, TAKEN_AT_ONCE,
    inside,
};

pub(super) struct AsyncRedisLock(Locker);

impl AsyncRedisLock {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(Locker::from_redis_url(url).await?))
    }
}

impl Contestant for AsyncRedisLock {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let options = Options::new().ttl(LEASE).extend(LEASE / 3);
        let seat = AsyncRedisLockSeat {
            locker: self.0.clone(),
            key: format!("async-redis-lock:{key}"),
            options: options.retry(RETRY).timeout(None),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

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

pub(super) async fn hold(url: &str, keys: &[String]) -> Result<(Locker, Vec<Lock>)> {
    let locker = Locker::from_redis_url(url).await?;
    let options = Options::new().ttl(IDLE_LEASE).extend(IDLE_RENEWAL);
    let locks = stream::iter(keys)
        .map(|key| locker.acquire_with_options(&options, key))
        .buffer_unordered(TAKEN_AT_ONCE)
        .try_collect()
        .await?;
    Ok((locker, locks))
}
