//! What becomes of a lock when servers and the ways to them fail: at a cluster of three masters.

mod common;
#[macro_use]
#[path = "faults/suite.rs"]
mod suite;

faults!(cluster: Fronted::cluster().await);
