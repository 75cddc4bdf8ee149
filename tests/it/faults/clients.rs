//! Clients in processes that sleep, fork, end or are paused.

mod forks;
mod leaving;
mod stale;
mod suspend;
