//! The fixture itself: what the other tests rely on, proved against real servers.

mod batch;
mod fault_kit;
mod fixture;
