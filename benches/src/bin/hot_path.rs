//! Runs a fixed number of uncontended acquires and releases, for tools that count instructions or
//! system calls. The difference of two runs consists of pairs only. The script `benches/callgrind`
//! uses it.

use anyhow::Result;
use clap::Parser;
use rlock_benches::hot_path::Way;
use rlock_core::LockClient;
use rlock_testkit::RedisServer;
use tokio::runtime::Builder;
use tracing_subscriber::filter::LevelFilter;

/// Acquires and releases an uncontended lock.
#[derive(Parser)]
struct Options {
    way: Way,
    pairs: usize,
    /// Installs a metrics recorder, like a service that exports metrics.
    #[cfg(feature = "metrics")]
    #[arg(long)]
    recorder: bool,
    /// Installs a subscriber of spans up to this level.
    #[arg(long)]
    spans: Option<LevelFilter>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    #[cfg(feature = "metrics")]
    if options.recorder {
        metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    }
    if let Some(level) = options.spans {
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::sink)
            .init();
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (server, builder) = (RedisServer::start(), LockClient::builder());
    runtime.block_on(options.way.run(&server, builder, options.pairs))
}
