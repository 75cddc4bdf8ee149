//! What is logged.

mod capabilities;
mod metrics;
mod redaction;
mod reports;
mod spans;
