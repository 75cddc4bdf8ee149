//! Distributed locks for Rust services, on a Redis or Valkey server or in memory.
//!
//! A function with [`macro@distributed_lock`] never runs twice at once for the same key, anywhere in
//! the fleet. The lock is re-entrant along the call chain, renewed while the body runs, given back
//! whatever ends the body, and carries a fencing token.
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
//! - [`macro@distributed_lock`]: the attribute and its options.
//! - [`LockClient`]: one connection to one store; [`LockClient::connect`] lists the URLs,
//!   [`LockClient::builder`] sets prefix, defaults and time-outs.
//! - [`Lock`] and [`LockGuard`]: locks without the attribute; [`Lock::run`] around a future,
//!   [`Lock::run_blocking`] around a closure.
//! - [`current`]: the hold that the present call is inside of, with its fencing token.
//! - [`LockError`]: what can go wrong, and what to do about it.
//!
//! # What it promises, and what no lock can
//!
//! Of all calls that lock a key through one store and prefix, one is inside at a time. The limits
//! are those of every lock with a lease: a process that stands still for longer than its lease may
//! act once more when it wakes up, and a server that loses its memory loses its locks. A
//! [fencing token](LockGuard::fencing_token) lets the storage refuse the late writer. The README has
//! the whole list.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `macros` | yes | the attribute |
//! | `tls` | no | `rediss://` URLs, verified by the system's root certificates |
//!
//! # Runtimes
//!
//! A client brings its own background: one thread named `rlock`. Its futures can be awaited on any
//! executor, its guards dropped anywhere.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "macros"), allow(rustdoc::broken_intra_doc_links))]
mod blocking;
mod caller;
mod client;
mod clock;
mod drivers;
mod engine;
mod error;
mod escape_control;
mod few;
mod guard;

#[cfg(all(test, shuttle))]
mod interleavings;
mod key;
mod lease;
mod limits;
mod lock;
mod multi_lock;
mod options;
mod owner;
mod private;
mod run;
mod scope;
mod store;
mod sync;
mod wait;

pub use crate::{
    client::{Drained, LockClient, LockClientBuilder, LockInfo},
    error::{LockError, LostCause},
    guard::LockGuard,
    key::escape,
    lock::Lock,
    multi_lock::{MultiLock, MultiLockGuard},
    options::Reentry,
    owner::OwnerId,
    scope::{CurrentHold, InCurrentScope, current},
};
#[cfg(feature = "macros")]
pub use rlock_macros::distributed_lock;

/// What the fuzz targets reach.
#[cfg(fuzzing)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod __fuzzing {
    use crate::store::redis::properties;

    pub fn message(message: &[u8]) {
        properties::message(message);
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

#[doc(hidden)]
#[allow(missing_docs)]
pub mod __private {
    pub use crate::clock::Clock;
    pub use crate::private::{
        AsClient, Box, FromLockError, FromOtherErrors, Part, Plan, handler, if_taken, key,
        returned, run, run_blocking, run_or_else, value,
    };
}
