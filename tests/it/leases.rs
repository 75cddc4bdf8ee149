//! Leases: renewal, loss, and the fencing tokens that outlive them.

pub(crate) mod clock;
mod fences;
mod loss;
mod watchdog;
