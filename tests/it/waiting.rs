//! Waits for a lock, and the transfer from one holder to the next.

mod handoff;
mod permits;
mod processes;
mod queue;
