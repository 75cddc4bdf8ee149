//! The locking protocol as a model.

pub mod differential;
pub mod server;
pub mod words;
