//! The rules of the embedded store: what each Lua script does, as functions on plain data.
//!
//! `LockClient::in_memory` keeps its locks in a [`State`] behind a mutex, and a simulated server in one with faults.

mod acquire;
mod hand_off;
mod lock;
mod restore;
mod state;
#[cfg(test)]
mod tests;
mod wait_queues;

pub use self::{
    lock::{LeaseHolder, LockState},
    state::State,
    wait_queues::WaitQueues,
};

/// The source of fences.
pub trait Fences {
    /// Returns a fence that is larger than each one before.
    fn next(&mut self) -> u64;

    /// Returns the last fence, or a larger one that the next fence exceeds.
    fn last(&self) -> u64;
}
