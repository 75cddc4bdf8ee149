//! What is logged.

mod capabilities;
mod diagnose;
mod documents;
mod metrics;
mod panics;
mod redaction;
mod reports;
mod spans;
