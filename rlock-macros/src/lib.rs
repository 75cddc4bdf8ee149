//! The attribute `#[distributed_lock]`.
