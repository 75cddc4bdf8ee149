//! `diagnose::store`: examines the servers of a store, whether they are fit for locks, and what to change if they are not.
//!
//! This is what the command `rlock doctor` prints, for the health tooling of a service: a check before a deployment, a
//! page for operators, an alert. A service connects with its own certificates, credentials and prefix, which the
//! command does not have, so a service finds what matters for its own locks.
//!
//! [`store`] takes seconds, and many requests. To ask whether locks can be acquired now, as a readiness probe does, use
//! [`LockClient::probe`](crate::LockClient::probe).

pub use crate::store::examine::{Finding, Severity};
use crate::{client::LockClientBuilder, error::LockError, store_url::StoreUrl};

/// Examines the servers of a store, as a client of this builder would use them.
///
/// Connects to each server with the builder's TLS options, [credentials](LockClientBuilder::credentials) and time-outs:
/// to the Sentinels and the replicas of a service, to all nodes of a cluster, to all members of a quorum, to all hosts of
/// a Postgres URL. It checks the permissions for the builder's [prefix](LockClientBuilder::prefix). Finally it acquires a
/// lock, as [`probe`](crate::LockClient::probe) does: at the server, at each master of a cluster, and at each member of a
/// quorum.
///
/// | check | what it finds |
/// | --- | --- |
/// | `connection` | a replica, a Sentinel or a minority of a quorum cannot be reached |
/// | `version` | the server is too old, or is a replica |
/// | `eviction` | the server may evict locks when its memory is full |
/// | `persistence` | a restart forgets locks |
/// | `connections` | a Postgres server has few connections left |
/// | `pooler` | a pooler is in front of a Postgres server |
/// | `primary` | a Postgres server is a standby or read-only |
/// | `schema` | the schema of a Postgres database is incomplete, has functions that were changed by hand, or has another durability; it also has functions of other versions |
/// | `clock`, `round trip` | the clock of the server differs from that of this machine; how quickly the server replies |
/// | `scripts`, `permissions` | the server's user may not call scripts, or lacks permissions |
/// | `tracking` | a deleted lock is noticed late |
/// | `operations` | the user may not list locks, as the command `rlock ls` does |
/// | `master` | which server the Sentinels name, and whether a majority agrees |
/// | `slots` | a slot of the cluster has no master |
/// | `majority`, `identity` | how many members of a quorum may fail; two URLs name one server |
/// | `grant` | the server refuses the lock, and why |
///
/// Each check has one finding at each server, except for `permissions` and `schema`, which may have more. The findings of a server
/// follow each other.
///
/// Changes nothing on the servers, except for that lock, whose fence remains for 70 seconds. On Postgres, it also creates a
/// missing schema if the role may, as every client does.
///
/// # Errors
///
/// - [`LockError::Unavailable`] if too few servers can be examined: none replies or accepts the login, no majority of a
///   quorum does, or no node knows the slots of its cluster. The error says why, for each server.
/// - [`LockError::InvalidOption`] for an invalid URL or option, and for the embedded store.
///
/// # Cancel safety
///
/// Dropping the future ends the examination. A lock that it holds at that moment ends within ten seconds.
///
/// # Examples
///
/// ```no_run
/// use rlock_core::{
///     LockClient, LockError,
///     diagnose::{self, Severity},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// // As the service connects.
/// let builder = LockClient::builder().prefix("billing:");
/// let findings = diagnose::store("redis://redis.internal/", &builder).await?;
/// for finding in &findings {
///     match finding.severity {
///         Severity::Good => println!("{finding}"),
///         _ => eprintln!("{finding}"),
///     }
/// }
/// let worst = findings.iter().map(|finding| finding.severity).max();
/// assert_ne!(worst, Some(Severity::Unsafe), "locks are not safe");
/// # Ok(())
/// # }
/// ```
pub async fn store(
    store: impl Into<StoreUrl>,
    builder: &LockClientBuilder,
) -> Result<Vec<Finding>, LockError> {
    builder.diagnose(store.into()).await
}
