//! Distributed locks for Rust services.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod blocking;
mod builder;
mod client;
mod core;
mod driver;
mod error;
mod guard;
mod hold;
mod key;
mod lease;
mod limits;
mod lock;
mod owner;
mod private;
mod queue;
mod release;
mod run;
mod scope;
mod store;
mod view;
mod wait;
mod watchdog;

pub use crate::{
    builder::LockClientBuilder,
    client::{LockClient, LockInfo},
    core::Reentry,
    error::{LockError, LostCause},
    guard::LockGuard,
    key::escape,
    lock::Lock,
    owner::OwnerId,
    scope::{CurrentHold, InCurrentScope, current},
};
#[cfg(feature = "macros")]
pub use rlock_macros::distributed_lock;

#[doc(hidden)]
#[allow(missing_docs)]
pub mod __private {
    pub use crate::private::{FromLockError, Part, Plan, key, run, run_or_else};
}
