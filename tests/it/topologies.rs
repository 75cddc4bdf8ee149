//! Every topology: one suite of semantics and one of faults over all of them, and what only one of them has.

mod cluster;
mod conformance;
mod failover;
mod faults;
mod quorum;
mod replicas;
mod sentinel;
