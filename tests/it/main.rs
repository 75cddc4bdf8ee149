//! The integration tests, by subject. They share one process, so a test that needs a process for itself runs again as a
//! child ([`crate::common::alone`]).

// The core by another name, as a renamed dependency has it.
extern crate rlock_core as renamed;

mod common;

mod cost;
mod faults;
mod leases;
mod observability;
mod programs;
mod protocol;
mod runtimes;
mod security;
mod semantics;
mod topologies;
mod waiting;
