//! What every store does alike, at a master and its replica that three Sentinels watch.

#[macro_use]
#[path = "conformance/suite.rs"]
mod suite;

conformance!(sentinel: Topology::sentinel().await);
