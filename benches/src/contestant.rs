//! Who takes part: this framework, the floors, the peers. Each file beside this one is one of them.

mod async_redis_lock;
mod bare_scripts;
mod blpop;
mod distributed_lock;
mod mutex;
mod ours;
mod ours_on_each;
mod raw;
mod raw_on_all;
mod redis_lock;
mod retaining;
mod rlock;
mod rslock;

use std::{fmt, future::Future, pin::Pin, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use rlock_testkit::RedisServer;
use serde::{Serialize, Serializer};

use crate::clock;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The lease of locks that are contended for: long enough that nobody renews during a run.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// How long locks are retained that are to be used again.
pub(crate) const RETAIN: Duration = Duration::from_secs(1);

/// How long peers that poll sleep between two attempts. Their defaults are 20 to 100 times as long
/// and would show nothing but the sleep.
pub(crate) const RETRY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// `SET NX PX` and a script that compares and deletes: the least that a lock can do.
    Raw,
    /// The same on several servers at once, answered by all.
    RawOnAll,
    /// A token passed through a list, by `BLPOP` and `LPUSH`: the least that a hand-off can do.
    Blpop,
    /// `tokio::sync::Mutex`, which knows one process: the most that a hand-over inside a process can do.
    Mutex,
    /// `PEXPIRE` in pipelines of 500: the least that a renewal can do.
    Pexpire,
    /// A script that extends 500 keys.
    PexpireScript,
    /// The scripts of this framework and nothing else of it: the least that its protocol can do.
    BareScripts,
    Ours,
    /// Serving processes strictly in the order in which they came.
    OursStrict,
    /// Serving up to four callers of a process in a row.
    #[value(name = "ours-handovers-4")]
    OursHandovers4,
    /// Serving up to 64.
    #[value(name = "ours-handovers-64")]
    OursHandovers64,
    /// Keeping each lock for a second after its last use.
    #[value(name = "ours-retaining")]
    OursRetaining,
    /// Keeping each lock for a millisecond, and taking another key each time.
    #[value(name = "ours-retaining-briefly")]
    OursRetainingBriefly,
    /// A key that another process retains.
    OursRetainedElsewhere,
    /// At a Redis Cluster.
    OursAtCluster,
    /// Locks of single servers, on several at once, answered by all.
    OursOnEach,
    /// A nested entry, counted at the store.
    OursNested,
    /// A nested entry, counted in the process.
    OursNestedLocally,
    Rslock,
    Rlock,
    AsyncRedisLock,
    DistributedLock,
    RedisLock,
}

impl Kind {
    pub(crate) const PEERS: [Self; 5] = [
        Self::Rslock,
        Self::Rlock,
        Self::AsyncRedisLock,
        Self::DistributedLock,
        Self::RedisLock,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RawOnAll => "raw, on all",
            Self::Blpop => "BLPOP",
            Self::Mutex => "tokio::sync::Mutex",
            Self::Pexpire => "PEXPIRE",
            Self::PexpireScript => "PEXPIRE script",
            Self::BareScripts => "our scripts, bare",
            Self::Ours => "ours",
            Self::OursStrict => "ours, local_handovers(0)",
            Self::OursHandovers4 => "ours, local_handovers(4)",
            Self::OursHandovers64 => "ours, local_handovers(64)",
            Self::OursRetaining => "ours, retain = 1s",
            Self::OursRetainingBriefly => "ours, retain = 1ms",
            Self::OursRetainedElsewhere => "ours, retained elsewhere",
            Self::OursAtCluster => "ours, cluster",
            Self::OursOnEach => "ours, on each",
            Self::OursNested => "ours, nested",
            Self::OursNestedLocally => "ours, nested locally",
            Self::Rslock => "rslock",
            Self::Rlock => "rlock",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::DistributedLock => "distributed-lock",
            Self::RedisLock => "redis-lock",
        }
    }

    pub(crate) fn is_peer(self) -> bool {
        Self::PEERS.contains(&self)
    }

    /// As the command line of a worker names it.
    pub(crate) fn argument(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Sets up what must be on the server before anybody contends for `key`.
    pub(crate) async fn prepare(self, server: &RedisServer, key: &str) {
        if self == Self::Blpop {
            blpop::prepare(server, key).await;
        }
    }

    /// Connects one client whose locks have this lease, renewed every third of it.
    pub(crate) async fn connect(self, url: &str, lease: Duration) -> Result<Box<dyn Contestant>> {
        use raw::Batch;
        Ok(match self {
            Self::Raw | Self::Pexpire => {
                Box::new(raw::Raw::connect(url, lease, Batch::Pipeline).await?)
            }
            Self::PexpireScript => Box::new(raw::Raw::connect(url, lease, Batch::Script).await?),
            Self::Blpop => Box::new(blpop::Blpop::connect(url)?),
            Self::Mutex => Box::new(mutex::Mutexes::default()),
            Self::Ours | Self::OursAtCluster => {
                Box::new(ours::Ours::connect(url, lease, None).await?)
            }
            Self::OursStrict => Box::new(ours::Ours::connect(url, lease, Some(0)).await?),
            Self::OursHandovers4 => Box::new(ours::Ours::connect(url, lease, Some(4)).await?),
            Self::OursHandovers64 => Box::new(ours::Ours::connect(url, lease, Some(64)).await?),
            Self::OursRetaining => {
                Box::new(retaining::Retaining::connect(url, lease, RETAIN, 1).await?)
            }
            Self::OursRetainingBriefly => {
                let (retain, keys) = (Duration::from_millis(1), retaining::APART);
                Box::new(retaining::Retaining::connect(url, lease, retain, keys).await?)
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
            Self::OursNested | Self::OursNestedLocally | Self::OursRetainedElsewhere => {
                anyhow::bail!("it is measured by itself")
            }
            Self::RawOnAll | Self::OursOnEach => anyhow::bail!("for several servers"),
        })
    }

    /// Connects one client to several servers, a majority of which has to grant.
    pub(crate) async fn connect_to_quorum(
        self,
        urls: &[String],
        lease: Duration,
    ) -> Result<Box<dyn Contestant>> {
        Ok(match self {
            Self::RawOnAll => Box::new(raw_on_all::RawOnAll::connect(urls, lease).await?),
            Self::OursOnEach => Box::new(ours_on_each::OursOnEach::connect(urls, lease).await?),
            Self::Ours => Box::new(ours::Ours::connect_to_quorum(urls, lease).await?),
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

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Locks that stay held and renewed until they are dropped.
pub(crate) trait Holding: Send {
    /// How many its client knows to be lost; nothing is known where it does not say.
    fn lost(&self) -> usize {
        0
    }
}

pub(crate) type Held = Box<dyn Holding>;

/// How many locks that are to be held are taken at a time.
const TAKEN_AT_ONCE: usize = 16;

/// One client of one contestant.
pub(crate) trait Contestant: Send + Sync {
    /// What one task needs to take the lock of `key` again and again.
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>>;

    /// Takes locks and keeps them. `None` if it has no means to renew them.
    fn hold<'a>(&'a self, _keys: &'a [String]) -> BoxFuture<'a, Result<Option<Held>>> {
        Box::pin(async { Ok(None) })
    }
}

/// One task's way to one lock.
pub(crate) trait Seat: Send {
    /// Takes the lock, waiting for it without a bound, stays inside for this long, gives it back.
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>>;
}

/// When somebody was inside, by [`clock::now`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    pub(crate) entered: u64,
    pub(crate) left: u64,
}

/// Stays inside, and notes when that was.
pub(crate) fn inside(stay: Duration) -> Inside {
    let entered = clock::now();
    let until = entered + u64::try_from(stay.as_nanos()).unwrap_or(u64::MAX);
    let mut left = entered;
    while left < until {
        std::hint::spin_loop();
        left = clock::now();
    }
    Inside { entered, left }
}
