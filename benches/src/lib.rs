//! What the small programs in `bin` share: the hot path, for counters that repeat exactly where
//! clocks do not.

pub mod hot_path;
