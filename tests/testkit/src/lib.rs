//! Fixtures for the tests of this workspace: servers, a network that fails on demand, other
//! processes, and a witness of mutual exclusion.
//!
//! Only [`Topology`], [`Fronted`], [`simultaneous`], [`assert_taken`] and [`Witness`] use the library under test. A
//! fixture that fails panics with a reason, so its methods have no "Panics" sections.

#![allow(clippy::missing_panics_doc)]

mod child;
mod cluster;
mod eventually;
pub mod leftovers;
pub mod package;
mod pooler;
pub mod port;
mod postgres;
mod process;
mod proxy;
mod scripts;
mod serve;
mod server;
#[cfg(unix)]
mod signals;
pub mod simultaneous;
mod taken;
mod topology;
mod unix;
mod witness;

pub use child::LeashedChild;
pub use cluster::{MASTERS, RedisCluster};
pub use eventually::{eventually, within};
pub use pooler::Pooler;
pub use postgres::PostgresServer;
pub use process::Worker;
pub use proxy::{Proxy, Request};
pub use scripts::{Scripts, script_text};
pub use server::{Authority, ClientCommand, CommandWatch, RedisServer, RedisServerBuilder};
#[cfg(unix)]
pub use signals::stop_ignoring_signals;
pub use taken::assert_taken;
pub use topology::{FAILOVER, Fronted, Place, SERVICE, Topology, Trio, TrioBuilder};
pub use witness::{Inside, Witness};

use std::time::Duration;

/// The limit after which a test counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
