//! Clients in processes that sleep, end or are paused.

mod leaving;
mod suspend;
