//! Clients on every kind of runtime, and without one.

mod bare;
mod caller_connection;
mod executors;
