//! Waits for a lock, and the transfer from one holder to the next.

pub(crate) mod elections;
mod handoff;
mod processes;
mod queue;
mod short;
mod unpolled;
