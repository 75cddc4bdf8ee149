//! Networks that lose whole connections.

mod half_open;
