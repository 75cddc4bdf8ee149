//! Clients on every kind of runtime, and without one.

mod bare;
mod executors;
mod near;
mod undriven;
