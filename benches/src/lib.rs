//! Code that the programs of this crate share: medians, and the hot path for exact counters.

pub mod hot_path;
pub mod statistics;
