//! The floors of acquiring and renewing: redis-rs alone, with one connection and its defaults.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use redis::{Client, Pipeline, RedisResult, Script, aio::MultiplexedConnection};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use super::{BoxFuture, Contestant, Held, Holding, Inside, RETRY, Seat, TAKEN_AT_ONCE, inside};

const TOKEN: &str = "8c2c0e5e-8b1f-4b9a-9d0f-1f2a3b4c5d6e";

pub(super) struct Raw {
    connection: MultiplexedConnection,
    unlock: Arc<Script>,
    lease: Duration,
    batch: Batch,
}

impl Raw {
    pub(super) async fn connect(url: &str, lease: Duration, batch: Batch) -> Result<Self> {
        Ok(Self {
            connection: Client::open(url)?
                .get_multiplexed_async_connection()
                .await?,
            unlock: Arc::new(unlock()),
            lease,
            batch,
        })
    }
}

impl Contestant for Raw {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RawSeat {
            key: format!("raw:{key}"),
            connection: self.connection.clone(),
            unlock: Arc::clone(&self.unlock),
            lease: self.lease,
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }

    fn hold<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        let keys: Vec<String> = keys.iter().map(|key| format!("raw:{key}")).collect();
        let mut connection = self.connection.clone();
        let (lease, batch) = (self.lease, self.batch);
        Box::pin(async move {
            for keys in keys.chunks(TAKEN_AT_ONCE) {
                let taking = keys.iter().map(|key| {
                    let mut connection = connection.clone();
                    async move { take(&mut connection, key, lease).await }
                });
                let taken = try_join_all(taking).await?;
                ensure!(taken.into_iter().all(|taken| taken), "a key is taken");
            }
            let renewing = async move { renew(&mut connection, &keys, lease, batch).await };
            Ok(Some(Box::new(Renewing(tokio::spawn(renewing))) as Held))
        })
    }
}

struct RawSeat {
    key: String,
    connection: MultiplexedConnection,
    unlock: Arc<Script>,
    lease: Duration,
}

impl Seat for RawSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            while !take(&mut self.connection, &self.key, self.lease).await? {
                tokio::time::sleep(RETRY).await;
            }
            let inside = inside(stay);
            let unlocked = give_back(&mut self.connection, &self.unlock, &self.key).await?;
            ensure!(unlocked, "the key did not exist");
            Ok(inside)
        })
    }
}

/// Returns the compare-and-delete script.
pub(super) fn unlock() -> Script {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    )
}

pub(super) async fn give_back(
    connection: &mut MultiplexedConnection,
    unlock: &Script,
    key: &str,
) -> Result<bool> {
    let mut unlock = unlock.key(key);
    Ok(unlock.arg(TOKEN).invoke_async(connection).await?)
}

pub(super) async fn take(
    connection: &mut MultiplexedConnection,
    key: &str,
    lease: Duration,
) -> Result<bool> {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(TOKEN).arg("NX");
    set.arg("PX").arg(milliseconds(lease));
    Ok(set.query_async(connection).await?)
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The number of keys in a batch.
const BATCH: usize = 500;

/// The command that extends a batch of keys.
#[derive(Clone, Copy)]
pub(super) enum Batch {
    Pipeline,
    Script,
}

/// Renews until it is dropped.
struct Renewing(JoinHandle<()>);

impl Holding for Renewing {}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn renew(
    connection: &mut MultiplexedConnection,
    keys: &[String],
    lease: Duration,
    batch: Batch,
) {
    let script =
        Script::new("for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end return #KEYS");
    let mut ticks = interval(lease / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lease = milliseconds(lease);
    loop {
        ticks.tick().await;
        for keys in keys.chunks(BATCH) {
            let renewed: RedisResult<()> = match batch {
                Batch::Pipeline => {
                    let mut pipeline = Pipeline::with_capacity(keys.len());
                    for key in keys {
                        pipeline.cmd("PEXPIRE").arg(key).arg(lease);
                    }
                    let renewed: RedisResult<Vec<bool>> = pipeline.query_async(connection).await;
                    renewed.map(drop)
                }
                Batch::Script => {
                    let mut call = script.key(keys);
                    let renewed: RedisResult<u64> = call.arg(lease).invoke_async(connection).await;
                    renewed.map(drop)
                }
            };
            if let Err(error) = renewed {
                // The next attempt may be in time.
                eprintln!("a batch was not renewed: {error}");
            }
        }
    }
}
