//! Client processes that sleep, end, are paused or are killed.

mod leaving;
mod suspend;
