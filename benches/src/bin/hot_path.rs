//! Runs a fixed number of uncontended acquires and releases and nothing else, for tools that count
//! instructions or calls of the kernel: two runs of different length differ by the pairs alone. The script
//! `benches/callgrind` does that.

use anyhow::Result;
use clap::Parser;
use rlock_benches::hot_path::Way;
use rlock_core::LockClient;
use rlock_testkit::RedisServer;
use tokio::runtime::Builder;

/// Acquires and releases a lock that nobody else wants.
#[derive(Parser)]
struct Options {
    way: Way,
    pairs: usize,
    /// Runs the task on so many worker threads instead of the thread of the program.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    threads: Option<u8>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = match options.threads {
        None => Builder::new_current_thread().enable_all().build()?,
        Some(threads) => Builder::new_multi_thread()
            .worker_threads(threads.into())
            .enable_all()
            .build()?,
    };
    let server = RedisServer::start();
    let task = async move {
        let builder = LockClient::builder();
        options.way.run(&server, builder, options.pairs).await
    };
    match options.threads {
        None => runtime.block_on(task),
        Some(_) => runtime.block_on(async { tokio::spawn(task).await? }),
    }
}
