//! Waits for a lock, and the transfer from one holder to the next.

mod handoff;
mod late;
mod processes;
mod queue;
mod wakeups;
