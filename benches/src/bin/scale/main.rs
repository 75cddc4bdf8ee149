//! What locks cost a server, as the server counts it: processor time and bytes on the network for a pair
//! of acquire and release, a change of holder and a renewal; and memory for a held lock, what it leaves, and
//! who waits. The figures of `docs/scale.md`.

mod cost;
mod ground;
mod memory;
mod work;

use anyhow::Result;
use clap::Parser;

use self::ground::Kind;

/// Measures what locks cost a server of their own.
#[derive(Parser)]
struct Options {
    /// What locks live on, for processor time and bytes; those of all masters together count, and
    /// replicas beside them. Memory is measured of one server.
    #[arg(long, value_enum, default_value_t = Kind::Server)]
    on: Kind,
    /// How many locks are held for the memory that they take; none leaves memory out.
    #[arg(long, default_value_t = 100_000)]
    locks: u32,
    /// How many locks have waiters, for the memory that those take.
    #[arg(long, default_value_t = 2_000)]
    lines: u32,
    /// How many pairs, changes or renewals are counted, each.
    #[arg(long, default_value_t = 50_000)]
    operations: u32,
    /// How often processor time and bytes are measured; the median counts. None leaves them out.
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
