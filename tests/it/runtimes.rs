//! Clients on every kind of runtime, and without one.

mod bare;
mod blocked;
mod connections;

use tokio::runtime::{Builder, Runtime};

fn single() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
