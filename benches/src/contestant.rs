//! The contestants: this framework, the floors and the peers. Each file in the directory is one of
//! them.

mod async_redis_lock;
mod bare_scripts;
mod blpop;
mod distributed_lock;
mod mutex;
mod ours;
mod ours_on_each;
mod postgres;
mod raw;
mod raw_on_all;
mod redis_lock;
mod rlock;
mod rslock;
mod rw_lock;

use std::{fmt, future::Future, pin::Pin, time::Duration};

use anyhow::Result;
use rlock_core::{LockClient, StoreUrl};
use rlock_testkit::RedisServer;
use serde::{Deserialize, Serialize};

use self::ours::Ours;
use crate::clock;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The lease of contended locks: long enough that no lease is renewed during a run.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The duration of retentions.
pub(crate) const RETAIN: Duration = Duration::from_secs(1);

/// The pause of a writer among readers.
const BETWEEN_WRITES: Duration = Duration::from_millis(100);

/// The number of keys that a task uses in turn, so that it never finds its own retained lock.
const KEYS_IN_TURN: usize = 256;

/// The pause of polling peers between two attempts. Their defaults are 20 to 100 times as long, and
/// would dominate the figures.
pub(crate) const RETRY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `SET NX PX` and a script that compares and deletes: the minimum for a lock.
    Raw,
    /// The same on several servers at once, with the replies of all.
    RawOnAll,
    /// A token passed through a list, by `BLPOP` and `LPUSH`: the minimum for a hand-off.
    Blpop,
    /// `tokio::sync::Mutex`, limited to one process: the maximum for a local hand-over.
    Mutex,
    /// `tokio::sync::RwLock` for readers: the maximum for shared holds within one process.
    RwLock,
    /// The same with one write in 20 calls.
    RwLockFewWrites,
    /// `PEXPIRE` in pipelines of 500: the minimum for a renewal.
    Pexpire,
    /// A script that extends 500 keys.
    PexpireScript,
    /// The scripts of this framework alone: the minimum for its protocol.
    BareScripts,
    Ours,
    /// A nested call of a lock that is held.
    OursNested,
    /// With a strict order of processes.
    OursStrict,
    /// With a retention of one second.
    OursRetaining,
    /// With a retention of one millisecond, and another key each time.
    OursRetainingBriefly,
    /// With a key that another process retains.
    OursRetainedElsewhere,
    /// With a Redis Cluster.
    OursAtCluster,
    /// Locks of single servers, on several at once, with the replies of all.
    OursOnEach,
    /// A lock that the tasks share.
    OursShared,
    /// The same with one write in 20 calls.
    OursSharedFewWrites,
    /// A task that writes every 100 ms.
    OursWriter,
    Rslock,
    Rlock,
    AsyncRedisLock,
    DistributedLock,
    RedisLock,
    /// Two prepared statements with the same writes in Postgres.
    PostgresFloor,
    /// An advisory lock of Postgres.
    PgAdvisoryLock,
    DistributedLockPostgres,
    /// A row with a lease, polled each 250 ms.
    LeaseRow,
}

impl Kind {
    pub(crate) const PEERS: [Self; 5] = [
        Self::Rslock,
        Self::Rlock,
        Self::AsyncRedisLock,
        Self::DistributedLock,
        Self::RedisLock,
    ];

    pub(crate) const POSTGRES_PEERS: [Self; 3] = [
        Self::PgAdvisoryLock,
        Self::DistributedLockPostgres,
        Self::LeaseRow,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RawOnAll => "raw, on all",
            Self::Blpop => "BLPOP",
            Self::Mutex => "tokio::sync::Mutex",
            Self::RwLock => "tokio::sync::RwLock",
            Self::RwLockFewWrites => "tokio::sync::RwLock, 5 % writes",
            Self::Pexpire => "PEXPIRE",
            Self::PexpireScript => "PEXPIRE script",
            Self::BareScripts => "our scripts, bare",
            Self::Ours => "ours",
            Self::OursNested => "ours, nested",
            Self::OursStrict => "ours, max_local_handovers(0)",
            Self::OursRetaining => "ours, retain = 1s",
            Self::OursRetainingBriefly => "ours, retain = 1ms",
            Self::OursRetainedElsewhere => "ours, retained elsewhere",
            Self::OursAtCluster => "ours, cluster",
            Self::OursOnEach => "ours, on each",
            Self::OursShared => "ours, shared",
            Self::OursSharedFewWrites => "ours, shared, 5 % writes",
            Self::OursWriter => "ours, a writer",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::DistributedLock => "distributed-lock",
            Self::RedisLock => "redis-lock",
            Self::PostgresFloor => "two statements",
            Self::PgAdvisoryLock => "sqlx, PgAdvisoryLock",
            Self::DistributedLockPostgres => "distributed-lock-postgres",
            Self::LeaseRow => "a lease row, polled",
        }
    }

    pub(crate) fn is_peer(self) -> bool {
        Self::PEERS.contains(&self) || Self::POSTGRES_PEERS.contains(&self)
    }

    /// Returns whether it is this framework.
    pub(crate) fn is_ours(self) -> bool {
        self.name().starts_with("ours")
    }

    /// Prepares the server before tasks contend for `key`.
    pub(crate) async fn prepare(self, server: &RedisServer, key: &str) {
        if self == Self::Blpop {
            blpop::prepare(server, key).await;
        }
    }

    /// Connects one client whose locks have this lease, renewed after each third of it.
    pub(crate) async fn connect(self, url: &str, lease: Duration) -> Result<Box<dyn Contestant>> {
        use postgres::Postgres;
        use raw::Batch;
        use rw_lock::{Calls, RwLocks};
        let ours = LockClient::builder().default_lease(lease);
        Ok(match self {
            Self::Raw | Self::Pexpire => {
                Box::new(raw::Raw::connect(url, lease, Batch::Pipeline).await?)
            }
            Self::PexpireScript => Box::new(raw::Raw::connect(url, lease, Batch::Script).await?),
            Self::Blpop => Box::new(blpop::Blpop::connect(url)?),
            Self::Mutex => Box::new(mutex::Mutexes::default()),
            Self::RwLock => Box::new(RwLocks::of_tokio(Calls::Reads)),
            Self::RwLockFewWrites => Box::new(RwLocks::of_tokio(Calls::FewWrites)),
            Self::OursShared => Box::new(RwLocks::of(ours.connect(url).await?, Calls::Reads)),
            Self::OursSharedFewWrites => {
                Box::new(RwLocks::of(ours.connect(url).await?, Calls::FewWrites))
            }
            Self::OursWriter => {
                let calls = Calls::Writes(BETWEEN_WRITES);
                Box::new(RwLocks::of(ours.connect(url).await?, calls))
            }
            Self::Ours | Self::OursAtCluster => Box::new(Ours::new(ours.connect(url).await?)),
            Self::OursNested => Box::new(ours::Nested(Ours::new(ours.connect(url).await?))),
            Self::OursStrict => {
                Box::new(Ours::new(ours.max_local_handovers(0).connect(url).await?))
            }
            Self::OursRetaining => {
                let client = ours.default_retain(RETAIN).connect(url).await?;
                Box::new(Ours::retaining(client, 1))
            }
            Self::OursRetainingBriefly => {
                let client = ours
                    .default_retain(Duration::from_millis(1))
                    .connect(url)
                    .await?;
                Box::new(Ours::retaining(client, KEYS_IN_TURN))
            }
            Self::BareScripts => Box::new(bare_scripts::BareScripts::connect(url, lease).await?),
            Self::Rslock => Box::new(rslock::Rslock::connect(vec![url.to_owned()], lease)),
            Self::Rlock => Box::new(rlock::Rlock::connect(url, lease).await?),
            Self::AsyncRedisLock => {
                Box::new(async_redis_lock::AsyncRedisLock::connect(url, lease).await?)
            }
            Self::DistributedLock => {
                Box::new(distributed_lock::Distributed::connect(url, lease).await?)
            }
            Self::RedisLock => Box::new(redis_lock::RedisLock::connect(url, lease).await?),
            Self::PostgresFloor => Box::new(Postgres::connect(url, postgres::FLOOR).await?),
            Self::PgAdvisoryLock => Box::new(Postgres::connect(url, postgres::SQLX).await?),
            Self::DistributedLockPostgres => {
                Box::new(Postgres::connect(url, postgres::DISTRIBUTED_LOCK).await?)
            }
            Self::LeaseRow => Box::new(Postgres::connect(url, postgres::LEASE_ROW).await?),
            Self::OursRetainedElsewhere => {
                anyhow::bail!("it is measured by itself")
            }
            Self::RawOnAll | Self::OursOnEach => anyhow::bail!("for several servers"),
        })
    }

    /// Connects one client to the members of a quorum.
    pub(crate) async fn connect_to_quorum(
        self,
        urls: &[String],
        lease: Duration,
    ) -> Result<Box<dyn Contestant>> {
        Ok(match self {
            Self::RawOnAll => Box::new(raw_on_all::RawOnAll::connect(urls, lease).await?),
            Self::OursOnEach => Box::new(ours_on_each::OursOnEach::connect(urls, lease).await?),
            Self::Ours => {
                let builder = LockClient::builder().default_lease(lease);
                Box::new(Ours::new(builder.connect(StoreUrl::quorum(urls)).await?))
            }
            Self::Rslock => Box::new(rslock::Rslock::connect(urls.to_vec(), lease)),
            _ => anyhow::bail!("{self} knows no quorum"),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Locks that stay held and renewed until they are dropped.
pub(crate) trait Holding: Send {
    /// Returns the number of locks whose loss the client knows; zero if it does not report losses.
    fn lost(&self) -> usize {
        0
    }
}

pub(crate) type Held = Box<dyn Holding>;

/// The number of idle locks that are acquired at a time.
const TAKEN_AT_ONCE: usize = 16;

/// One client of one contestant.
pub(crate) trait Contestant: Send + Sync {
    /// Returns the operation of one task that acquires the lock of `key` repeatedly.
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>>;

    /// Acquires and holds locks. Returns `None` if the contestant cannot renew them.
    fn hold<'a>(&'a self, _keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async { Ok(None) })
    }
}

/// The operation of one task on one lock.
pub(crate) trait Seat: Send {
    /// Acquires the lock without a limit for the wait, stays inside for this long, and releases it.
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>>;
}

/// The times of an entry and its exit, by [`clock::now`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) entered: u64,
    pub(crate) left: u64,
    /// Whether other tasks may be inside that share the lock, too.
    pub(crate) is_shared: bool,
}

/// Stays inside, and records the times.
pub(crate) fn inside(stay: Duration) -> Inside {
    let entered = clock::now();
    let until = entered + u64::try_from(stay.as_nanos()).unwrap_or(u64::MAX);
    let mut left = entered;
    while left < until {
        std::hint::spin_loop();
        left = clock::now();
    }
    Inside {
        entered,
        left,
        is_shared: false,
    }
}
