//! Runs a fixed number of uncontended acquires and releases and nothing else, for tools that count
//! instructions: two runs of different length differ by the pairs alone. The script
//! `benches/callgrind` does that.

use anyhow::Result;
use clap::Parser;
use rlock_benches::hot_path::Way;
use rlock_core::LockClient;
use rlock_tests::RedisServer;

/// Acquires and releases a lock that nobody else wants.
#[derive(Parser)]
struct Options {
    way: Way,
    pairs: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let server = RedisServer::start();
    let builder = LockClient::builder();
    options.way.run(&server, builder, options.pairs).await
}
