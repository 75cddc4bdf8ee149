//! The runtimes of contestants: the same kind for all contestants of a scenario.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// One thread: the least latency.
pub(crate) fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Two worker threads, as many as the cores of the first measurements.
pub(crate) fn two_threads() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}
