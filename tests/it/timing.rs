//! Tests whose subject is a bound of time, load, or hundreds of repetitions. `scripts/test-all timing` runs them one after
//! another, on a quiet machine.
//!
//! Each is marked `#[ignore = "scripts/test-all timing"]`.

mod conformance;
mod faults;
mod leases;
mod observability;
mod runtimes;
mod topologies;
mod waiting;
