//! Leases: renewal, loss, and the fencing tokens that outlive them.

mod batches;
mod fences;
mod loss;
mod watchdog;
