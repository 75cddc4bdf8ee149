//! Connections that break or are cut, and what calls in flight do then.

mod half_open;
