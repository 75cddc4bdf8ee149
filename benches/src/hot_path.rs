//! Acquires and releases an uncontended lock a fixed number of times.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;
use redis::Script;
use rlock_core::{LockClient, LockClientBuilder, Reentry};
use rlock_testkit::RedisServer;

const KEY: &str = "order:42";
const TASKS: usize = 16;

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
            Self::Raw => raw(server, pairs).await,
        }
    }
}

async fn ours(client: &LockClient, pairs: usize) -> Result<()> {
    let lock = client.lock(KEY).label("order:<id>");
    for _ in 0..pairs {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}

/// Spreads the pairs over the tasks.
async fn hand_overs(client: &LockClient, pairs: usize) -> Result<()> {
    let run = |task| {
        let lock = client.lock(KEY).label("order:<id>");
        let own = pairs / TASKS + usize::from(task < pairs % TASKS);
        tokio::spawn(async move {
            for _ in 0..own {
                let guard = lock.acquire().await?;
                // Lets the other tasks queue.
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            anyhow::Ok(())
        })
    };
    for task in try_join_all((0..TASKS).map(run)).await? {
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
