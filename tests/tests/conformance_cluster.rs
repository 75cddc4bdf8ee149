//! What every store does alike, at a cluster of three masters with a replica each.

#[macro_use]
#[path = "conformance/suite.rs"]
mod suite;

conformance!(cluster: Topology::cluster().await);
