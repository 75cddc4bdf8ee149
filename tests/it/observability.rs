//! What is logged.

mod capabilities;
mod reports;
