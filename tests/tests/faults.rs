//! What becomes of a lock when servers and the ways to them fail: at one server, by either protocol.

mod common;
#[macro_use]
#[path = "faults/suite.rs"]
mod suite;

faults!(resp3: Fronted::server());
faults!(resp2: Fronted::server_by_resp2());
