use std::time::Duration;

use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "index", watchdog = false, retain = "10s")]
async fn literal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "index", retain = time, watchdog = false)]
fn expression(time: Duration) -> Result<(), LockError> {
    Ok(())
}

// No retention.
#[distributed_lock(key = "index", watchdog = false, retain = "0s")]
async fn none() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
