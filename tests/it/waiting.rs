//! Waits for a lock, and how it changes hands: hand-off by the store and hand-over within a client.

pub(crate) mod drill;
mod elections;
mod handoff;
mod processes;
mod queue;
mod short;
mod unpolled;
