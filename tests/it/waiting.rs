//! Waiting for a lock, and how it goes from one holder to the next.

mod handoff;
mod late;
mod processes;
mod queue;
mod wakeups;
