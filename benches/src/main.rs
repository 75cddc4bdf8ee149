//! b
mod clock;
mod contestant;
fn main() {}
