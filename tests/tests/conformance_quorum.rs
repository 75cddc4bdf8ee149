//! What every store does alike, on five servers that know nothing of each other: while all are well, and
//! while two of them stand still, the first or others.

#[macro_use]
#[path = "conformance/suite.rs"]
mod suite;

conformance!(five: Topology::quorum_without(&[]));
conformance!(without_the_first: Topology::quorum_without(&[0, 3]));
conformance!(without_others: Topology::quorum_without(&[2, 4]));
