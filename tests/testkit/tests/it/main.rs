//! The fixture itself: what the other tests rely on, proved against real servers.

mod fault_kit;
mod fixture;
