//! Clients on every kind of runtime, and without one.

mod bare;
mod blocked;
mod connections;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A lease so long that no test renews it, so only the server can report a loss. Also a time-out that never strikes.
const HOUR: Duration = Duration::from_secs(60 * 60);

fn single() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
