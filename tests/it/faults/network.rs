//! Networks that are slow, silent or cut.

mod frozen;
mod half_open;
mod outages;
