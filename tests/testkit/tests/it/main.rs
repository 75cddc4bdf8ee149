//! Checks of the fixture itself against real servers.

mod batch;
mod fault_kit;
mod fixture;
