//! Clients on every kind of runtime, and without one.

mod bare;
mod blocked;
mod connections;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A lease that is not renewed in a test, so only the server can report a loss; and a time-out that does not strike.
const HOUR: Duration = Duration::from_secs(60 * 60);

fn single() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
