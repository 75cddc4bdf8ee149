//! Counts the allocations of one acquire and release on the caller's thread. It is a separate
//! program, because the counting allocator would slow down the other measurements.

use anyhow::Result;
use clap::ValueEnum as _;
use rlock_benches::hot_path::Way;
use rlock_core::LockClient;
use rlock_testkit::RedisServer;

/// The difference of two runs consists of pairs only.
const SHORT: usize = 100;
const LONG: usize = 1_100;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let server = RedisServer::start();
    println!("{:>16} {:>12} {:>7}", "", "allocations", "bytes");
    for way in Way::ALL {
        let count = |pairs| -> Result<(u64, u64)> {
            let builder = LockClient::builder();
            // The counter covers this thread, not the client's background.
            let mut outcome = Ok(());
            let counted = allocation_counter::measure(|| {
                outcome = runtime.block_on(way.run(&server, builder, pairs));
            });
            outcome.map(|()| (counted.count_total, counted.bytes_total))
        };
        let (short, long) = (count(SHORT)?, count(LONG)?);
        let name = way.to_possible_value();
        println!(
            "{:>16} {:>12.1} {:>7.0}",
            name.as_ref().map_or("", |name| name.get_name()),
            per_pair(short.0, long.0),
            per_pair(short.1, long.1)
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a thousand pairs")]
fn per_pair(short: u64, long: u64) -> f64 {
    (long.saturating_sub(short)) as f64 / (LONG - SHORT) as f64
}
