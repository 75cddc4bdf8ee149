//! Tests that run threads on a client's local queues, holds and release queue in many orders.
//!
//! Shuttle chooses the thread that continues at each step. No timer fires, so a thread that misses a
//! wake-up waits for ever, which shuttle reports. `scripts/shuttle` runs these tests.

mod holds;
mod locks;
pub(crate) mod steps;
mod turns;
mod world;

use std::{
    env,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use shuttle::{
    Config, Runner,
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
};

use crate::guard::LockGuard;

/// Runs a test in many orders: random ones, and ones with a few changes of thread at unlikely places.
fn in_many_orders(test: impl Fn() + Send + Sync + Copy + 'static) {
    let orders = env::var("RLOCK_ORDERS").ok();
    let orders = orders.map_or(5_000, |orders| orders.parse().expect("a number"));
    let mut config = Config::new();
    // Unoptimised builds need more than shuttle's 32 KiB.
    config.stack_size = 256 * 1024;
    Runner::new(RandomScheduler::new(orders), config.clone()).run(test);
    Runner::new(PctScheduler::new(3, orders), config).run(test);
}

/// Polls the future at most this often, then drops it. Returns its output if it resolved.
async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            poll => poll.map(Some),
        }
    })
    .await
}

/// Releases an entry: drops the guard, drops the release half-way, or awaits it.
async fn leave(guard: LockGuard) {
    match thread_rng().gen_range(0..3) {
        0 => drop(guard),
        1 => drop(polled(1, guard.release()).await),
        _ => guard.release().await.expect("held"),
    }
}
