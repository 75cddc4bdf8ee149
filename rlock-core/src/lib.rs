//! Distributed locks for Rust services, on Redis or Valkey servers, in Postgres or in memory.
//!
//! A function with the attribute [`macro@distributed_lock`] runs one call at a time for each key, across all
//! processes that use the same store. The lock is re-entrant, so a locked function can call another one that locks
//! the same key. The client renews the lock while the body runs, and releases it whether the body returns, fails,
//! panics or is cancelled. Each *hold*, from an acquire to its release, has a fencing token, with which a database
//! can refuse a writer that has lost its lock.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use rlock_core::{LockClient, LockError, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", lease = "30s")]
//! async fn pay(id: u64) -> Result<String, LockError> {
//!     Ok(format!("receipt for order {id}"))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), LockError> {
//!     // Or LockClient::connect("redis://127.0.0.1:6379/").await?
//!     LockClient::in_memory().install();
//!     assert_eq!(pay(42).await?, "receipt for order 42");
//!     Ok(())
//! }
//! ```
//!
//! # Where to begin
//!
//! - [`macro@distributed_lock`]: the attribute and its options. [`macro@key`] makes the keys of its
//!   templates for code without it.
//! - [`LockClient`]: a client of one store. [`StoreUrl`] lists the URLs, and [`LockClient::builder`] sets the prefix,
//!   the defaults and the time-outs.
//! - [`Lock`] and [`LockGuard`]: locks without the attribute. [`Lock::run`] runs a future inside the lock,
//!   [`Lock::run_blocking`] runs a closure, and [`LockClient::lock_all`] makes a lock of several keys.
//! - [`Lock::shared`] and [`Lock::permits`]: locks that several calls can hold at once. [`LockGuard::downgrade`]
//!   turns an exclusive lock into a shared one.
//! - [`Hold::extend`]: sets another lease. [`LockGuard::detach`] leaves a lock to its lease, and returns the token by
//!   which any client can call [`LockClient::extend_if`] and [`LockClient::release_if`].
//! - [`LockClient::election`]: elects one of several processes as the leader, in numbered terms.
//! - [`LockClient::once`]: runs a scheduled job once for each tick, on one of several instances.
//! - [`current`]: returns the hold that the running code is inside, with its fencing token.
//! - [`LockClient::inspect`] and [`LockClient::list`]: who holds and awaits a lock. [`LockClient::request_release`] asks
//!   its holder to release it. [`LockClient::revoke`], [`LockClient::release_if`] and [`LockClient::force_release`] take it away.
//! - [`diagnose`]: examines whether servers are fit for locks, for the health tooling of a service.
//! - [`fencing`]: the SQL statements with which a database refuses a holder that has lost its lock.
//! - [`LockError`]: what can fail, and what to do about it.
//! - [`testing`]: simulates outages and losses, and controls the clock, for the tests of a service.
//!
//! # Stores
//!
//! | store | [`LockClient::connect`] to |
//! | --- | --- |
//! | one Redis (6.2 or later) or Valkey server | `redis://host:6379/`, `rediss://` for TLS, `unix:///path` |
//! | the master of a Sentinel service | `redis-sentinel://host1,host2,host3/service` |
//! | Redis Cluster | `redis-cluster://host1,host2,host3` |
//! | a quorum of independent servers (Redlock) | [`StoreUrl::quorum`]`([url, url, url])` |
//! | a Postgres database (feature `postgres`) | `postgres://user@host/database` |
//! | this process, for tests and tools | [`LockClient::in_memory`], `memory:name` |
//!
//! # Guarantees and limits
//!
//! Of all calls that lock the same key through the same store and prefix, one at a time is inside, unless the lock is
//! shared or has permits. The limits are those of every lock with a lease: a process that is paused for longer than
//! its lease can act once more when it resumes, and a server that restarts without its data forgets its locks. So
//! begin each database transaction with the guard of [`fencing`], which refuses the late writer.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `macros` | yes | the attribute, and [`macro@key`] |
//! | `metrics` | no | metrics by the facade [`metrics`](https://docs.rs/metrics), for any exporter of it |
//! | `postgres` | no | locks in a Postgres database, `postgres://` |
//! | `serde` | no | `Serialize` and `Deserialize` for [`Token`] and [`fencing::Fence`] |
//! | `testing` | no | [`testing`]: outages, losses and clocks that a test controls |
//! | `tls` | no | TLS for servers, verified by the system's root certificates |
//!
//! Install the recorder of the metrics for the whole process. A recorder of one thread
//! (`metrics::with_local_recorder`) is not supported, because a client that finds one may use it for the whole
//! process.
//!
//! # Runtimes
//!
//! A client runs its background tasks on a thread of its own, named `rlock`. So its futures can be awaited on any
//! executor, and its guards can be dropped on any thread.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "macros", feature = "testing")),
    allow(rustdoc::broken_intra_doc_links)
)]
mod backoff;
mod blocking;
mod caller;
mod client;
mod clock;
pub mod diagnose;
mod drivers;
pub mod election;
mod engine;
mod error;
pub mod fencing;
mod fingerprint;
mod guard;
mod hold;
mod info;
mod limits;
mod lock;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics_off.rs"]
mod metrics;
mod observe;
pub mod once;
mod options;
mod pattern;
mod private;
mod run;
mod scope;
mod store;
mod store_url;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod wording;

pub use rlock_proto::{key::escape, lost::LostCause, mode::LockMode};

#[cfg(feature = "tls")]
pub use crate::store::tls::ClientCertificate;
pub use crate::{
    client::{DrainOutcome, LockClient, LockClientBuilder},
    error::{ErrorKind, LockError},
    guard::LockGuard,
    hold::Hold,
    lock::Lock,
    options::Reentry,
    scope::{CurrentHold, InCurrentScope, current},
    store::credentials::Credentials,
    store_url::StoreUrl,
    token::Token,
};

pub mod inspect {
    //! What [`LockClient::inspect`](crate::LockClient::inspect) and [`LockClient::list`](crate::LockClient::list) show of
    //! a lock, its holders and its waiters.

    pub use crate::{
        client::LockList,
        info::{Holder, LockInfo, Waiter},
    };
}

#[cfg(feature = "macros")]
pub use rlock_macros::distributed_lock;

/// Makes a key from a template, as the attribute [`macro@distributed_lock`] does, for code without the attribute.
///
/// A [placeholder](macro@distributed_lock#key) names a variable, a constant or `self`, and may go on with fields,
/// indices and methods: `<id>`, `<order.id>`, `<self.tenant()>`, `<LIMIT>`. It may have a format: `<day:06>`. Values are
/// escaped, so different values never share a key. The key is the one that the attribute makes of the same template and
/// values, so both lock the same.
///
/// Returns a `String`, for [`LockClient::lock`]. A template that goes through a list, as `<ids[]>` does, returns a
/// `Vec<String>` with a key for each element, for [`LockClient::lock_all`].
///
/// The template is a literal. If the parts of a key are known only at run time, assemble it with [`escape`] around each
/// value.
///
/// # Panics
///
/// Panics if the `Display` or `Debug` of a value returns an error, as `format!` does.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, key};
///
/// struct Tenant {
///     id: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let tenant = Tenant { id: "a:b".to_owned() };
/// let id = 42;
/// let guard = client.lock(key!("tenant:<tenant.id>:order:<id>")).acquire().await?;
/// assert_eq!(guard.key(), "tenant:a%3Ab:order:42");
/// guard.release().await?;
///
/// let ids = [7, 8];
/// let guard = client.lock_all(key!("account:<ids[]>")).acquire().await?;
/// assert!(guard.keys().eq(["account:7", "account:8"]));
/// # guard.release().await
/// # }
/// ```
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! key {
    ($($template:tt)*) => {
        $crate::__private::key!($crate; $($template)*)
    };
}

/// The functions that the fuzz targets call.
#[cfg(fuzzing)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod __fuzzing {
    use crate::{engine::messages, store::redis::properties};

    pub fn message(message: &[u8]) {
        properties::message(message);
        let _ = messages::read(message);
    }

    pub fn reply(reply: &[u8]) {
        properties::reply(reply);
    }

    pub fn names(one: &str, other: &str) {
        properties::names(one, other);
    }

    pub fn url(url: &str) {
        properties::url(url);
    }
}

/// The traits that the attribute requires of types. The compiler's errors show their path, so the path names the
/// attribute.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod attribute {
    pub use crate::private::{
        AsClient, ByDisplay, ByOption, FromLockError, HasOrder, HasText, KeyValue, RunsUnderLock,
        Value,
    };
}

#[doc(hidden)]
#[allow(missing_docs)]
pub mod __private {
    #[cfg(feature = "macros")]
    pub use rlock_macros::__key as key;

    // For tests that call the scripts themselves.
    pub use crate::store::redis::scripts::script;

    pub use crate::private::{
        Box, KeyText, Plan, debugged, handler, hold, if_taken, returned, returned_by, run_blocking,
        run_on_error, texts,
    };
}
