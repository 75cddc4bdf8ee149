//! What logs, metrics and spans show of locks.

mod capabilities;
mod diagnose;
mod documents;
mod metrics;
mod panics;
mod redaction;
mod reports;
mod spans;
