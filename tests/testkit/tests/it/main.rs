//! Checks of the fixture itself against real servers.

mod fault_kit;
mod fixture;
mod simultaneous;
