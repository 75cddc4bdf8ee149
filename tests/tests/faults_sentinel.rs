//! What becomes of a lock when servers and the ways to them fail: at a master that three Sentinels watch.

mod common;
#[macro_use]
#[path = "faults/suite.rs"]
mod suite;

faults!(sentinel: Fronted::sentinel().await);
