//! What the programs of this crate share: medians; and the hot path, for counters that repeat exactly
//! where clocks do not.

pub mod hot_path;
pub mod statistics;
