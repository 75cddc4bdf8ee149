//! What is logged.

mod capabilities;
mod documents;
mod metrics;
mod redaction;
mod reports;
mod spans;
