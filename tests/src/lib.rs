//! What the tests of this workspace stand on: real servers, a network that fails on demand, other
//! processes, and witnesses of mutual exclusion.
//!
//! Nothing here knows the library under test, but for [`histories`], [`soak`], [`Topology`], [`Fronted`] and [`assert_taken`]. A fixture
//! that cannot do its part panics and says why, because a test has no better answer; "# Panics" is therefore not repeated
//! on every method.

#![allow(clippy::missing_panics_doc)]

mod child;
mod cluster;
mod eventually;
mod exclusion;
mod executor;
mod gate;
pub mod histories;
mod leftovers;
pub mod mutants;
mod port;
mod process;
mod proxy;
mod scripts;
mod serve;
mod server;
pub mod soak;
mod taken;
mod topology;

pub use cluster::{MASTERS, RedisCluster};
pub use eventually::{eventually, within};
pub use exclusion::{Exclusion, Inside, Overlap, SharedExclusion, SharedInside};
pub use executor::block_on;
pub use gate::{Gate, Way};
pub use process::Worker;
pub use proxy::{Proxy, Request};
pub use scripts::Scripts;
pub use server::{Authority, ClientCommand, CommandWatch, RedisServer, RedisServerBuilder};
pub use taken::assert_taken;
pub use topology::{Deletion, FAILOVER, Fronted, Place, SERVICE, Topology, Trio, TrioBuilder};

use std::time::Duration;

/// How long the fixture itself waits for what takes milliseconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The code in the guide to tests of services compiles and runs, too.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct Testing;

/// So does the code in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;

/// So does the code in the page on migrating.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrating.md")]
struct Migrating;
