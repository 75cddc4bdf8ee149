//! Losses: how the holder of a lock that is gone notices it, that its body stops, and that the loss is logged once.
//!
//! `topologies::faults::losses` loses locks on every store, and each fault in `faults` that ends a lease does so, too.

mod body;
mod logged;
mod noticed;
mod quorum;
