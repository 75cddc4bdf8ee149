//! What becomes of a lock when servers and the ways to them fail: at five servers that know nothing of each
//! other, when all of them are struck, and when the first two are not.

mod common;
#[macro_use]
#[path = "faults/suite.rs"]
mod suite;

faults!(all_of_five: Fronted::quorum());
faults!(three_of_five: Fronted::quorum_but_for_two());
