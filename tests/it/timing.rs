//! Tests of bounds on time or load, and of hundreds of repetitions. `scripts/test-all timing` runs them one after another,
//! because they need a quiet machine.
//!
//! Each is marked `#[ignore = "scripts/test-all timing"]`.

mod conformance;
mod elections;
mod faults;
mod groups;
mod observability;
mod topologies;
mod waiting;
