//! Acquires and releases an uncontended lock a fixed number of times.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;
use redis::Script;
use rlock_core::{Lock, LockClient, LockClientBuilder, Reentry};
use rlock_testkit::RedisServer;

const KEY: &str = "order:42";
const TASKS: usize = 16;
const OWN_KEYS: usize = 64;

/// The kind of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The embedded store.
    Memory,
    /// A server.
    Server,
    /// A nested entry on a server. It leaves before the client tells the server.
    Nested,
    /// A nested entry that the process counts.
    NestedLocally,
    /// Local hand-overs between 16 tasks, with the embedded store.
    HandOvers,
    /// A retained lock on a server.
    Retained,
    /// A lock that another call of the client shares already, with the embedded store.
    Shared,
    /// 64 tasks with a key each, on a server.
    OwnKeys,
    /// `SET NX PX` and a compare-and-delete script, with redis-rs alone.
    Raw,
}

impl Way {
    /// Connects a client of `builder`, and acquires and releases a lock `pairs` times.
    ///
    /// # Errors
    ///
    /// Returns the first error of the client or the server.
    pub async fn run(
        self,
        server: &RedisServer,
        builder: LockClientBuilder,
        pairs: usize,
    ) -> Result<()> {
        match self {
            Self::Memory => ours(&builder.in_memory()?, pairs).await,
            Self::Server => ours(&builder.connect(&server.url()).await?, pairs).await,
            Self::Nested => nested(server, builder.reentry(Reentry::Counted), pairs).await,
            Self::NestedLocally => nested(server, builder.reentry(Reentry::Local), pairs).await,
            Self::HandOvers => hand_overs(&builder.in_memory()?, pairs).await,
            Self::Retained => {
                let retain = Duration::from_secs(1);
                ours(
                    &builder
                        .default_retain(retain)
                        .connect(&server.url())
                        .await?,
                    pairs,
                )
                .await
            }
            Self::Shared => {
                let lock = builder.in_memory()?.lock(KEY).label("order:<id>").shared();
                let _held = lock.acquire().await?;
                acquire_and_release(&lock, pairs).await
            }
            Self::OwnKeys => own_keys(&builder.connect(&server.url()).await?, pairs).await,
            Self::Raw => raw(server, pairs).await,
        }
    }
}

async fn ours(client: &LockClient, pairs: usize) -> Result<()> {
    acquire_and_release(&client.lock(KEY).label("order:<id>"), pairs).await
}

async fn acquire_and_release(lock: &Lock, pairs: usize) -> Result<()> {
    for _ in 0..pairs {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

async fn hand_overs(client: &LockClient, pairs: usize) -> Result<()> {
    let lock = client.lock(KEY).label("order:<id>");
    in_tasks(TASKS, pairs, |_, own| {
        let lock = lock.clone();
        async move {
            for _ in 0..own {
                let guard = lock.acquire().await?;
                // Lets the other tasks queue.
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            Ok(())
        }
    })
    .await
}

async fn own_keys(client: &LockClient, pairs: usize) -> Result<()> {
    in_tasks(OWN_KEYS, pairs, |task, own| {
        let lock = client.lock(format!("order:{task}")).label("order:<id>");
        async move { acquire_and_release(&lock, own).await }
    })
    .await
}

/// Spreads the pairs over this many tasks. `run` gets the number of the task and the number of its pairs.
async fn in_tasks<F>(tasks: usize, pairs: usize, run: impl Fn(usize, usize) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let spawn = |task| {
        let own = pairs / tasks + usize::from(task < pairs % tasks);
        tokio::spawn(run(task, own))
    };
    for task in try_join_all((0..tasks).map(spawn)).await? {
        task?;
    }
    Ok(())
}

async fn nested(server: &RedisServer, builder: LockClientBuilder, pairs: usize) -> Result<()> {
    let client = builder.connect(&server.url()).await?;
    client.lock(KEY).run(ours(&client, pairs)).await?
}

async fn raw(server: &RedisServer, pairs: usize) -> Result<()> {
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let unlock = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    for _ in 0..pairs {
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg("token").arg("NX").arg("PX").arg(30_000);
        let taken: bool = set.query_async(&mut connection).await?;
        let mut unlock = unlock.key(KEY);
        let given: bool = unlock.arg("token").invoke_async(&mut connection).await?;
        ensure!(taken && given, "no other task uses the key");
    }
    Ok(())
}
