//! Measures the cost of locks on the server.
//!
//! It measures processor time for a pair of acquire and release, a transfer and a renewal. It also measures the memory of held
//! locks, of released locks, and of waiters.
//! `docs/performance.md` has the figures.

mod cost;
mod ground;
mod memory;
mod work;

use anyhow::Result;
use clap::Parser;

use self::ground::Kind;

/// Measures the cost of locks on their server.
#[derive(Parser)]
struct Options {
    /// The store for processor time. All masters count together, and replicas separately.
    /// Memory is measured on one server.
    #[arg(long, value_enum, default_value_t = Kind::Server)]
    on: Kind,
    /// The number of held locks for the memory measurement. Zero skips it.
    #[arg(long, default_value_t = 100_000)]
    locks: u32,
    /// The number of locks with waiters for the memory measurement.
    #[arg(long, default_value_t = 2_000)]
    lines: u32,
    /// The number of pairs, transfers and renewals to count.
    #[arg(long, default_value_t = 50_000)]
    operations: u32,
    /// The number of rounds for processor time. The median counts. Zero skips them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = Options::parse();
    if options.rounds > 0 {
        work::measure(options.on, options.operations, options.rounds).await?;
        println!();
    }
    if options.locks > 0 {
        memory::measure(options.locks, options.lines).await?;
    }
    Ok(())
}
