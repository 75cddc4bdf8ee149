//! What threads do at the same time to a client's lines, holds and release queue, in many orders.
//!
//! Shuttle chooses which thread goes on at each step. No timer ever fires, so whoever misses a wake-up
//! waits for ever, which shuttle reports. `scripts/shuttle` runs these.

mod holds;
mod locks;
pub(crate) mod steps;
mod turns;
mod world;

use std::env;

/// Runs a test in many orders: chosen freely, and with a few changes of thread in awkward places.
fn in_many_orders(test: impl Fn() + Send + Sync + Copy + 'static) {
    let orders = env::var("RLOCK_ORDERS").ok();
    let orders = orders.map_or(5_000, |orders| orders.parse().expect("a number"));
    shuttle::check_random(test, orders);
    shuttle::check_pct(test, orders, 3);
}
