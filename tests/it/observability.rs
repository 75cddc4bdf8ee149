//! What is logged.

mod capabilities;
mod metrics;
mod reports;
