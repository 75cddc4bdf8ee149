//! The integration tests, by subject. They share one process. A test that needs its own process
//! runs again as a child ([`crate::common::alone`]).

// Projects may rename the dependency.
extern crate rlock_core as renamed;

mod common;

mod faults;
mod leases;
mod losses;
mod observability;
mod programs;
mod protocol;
mod runtimes;
mod security;
mod semantics;
mod timing;
mod topologies;
mod waiting;
