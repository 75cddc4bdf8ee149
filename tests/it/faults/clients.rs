//! Clients that sleep, fork, end or stand still.

mod forks;
mod leaving;
mod stale;
mod suspend;
