//! Leases: renewal, and the fencing tokens that outlive them.

pub(crate) mod clock;
mod fences;
mod watchdog;
