//! All topologies: a suite of semantics and a suite of faults for each, and special tests for some.

mod cluster;
mod conformance;
mod databases;
mod failover;
mod faults;
mod quorum;
mod replicas;
mod sentinel;
