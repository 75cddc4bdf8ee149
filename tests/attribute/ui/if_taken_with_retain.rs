use std::time::Duration;

use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", wait = "0s", retain = "10s", if_taken = Ok(false))]
async fn literal() -> Result<bool, LockError> {
    Ok(true)
}

#[distributed_lock(key = "night", if_taken = false, retain = time, on_error = |_| false)]
fn expression(time: Duration) -> bool {
    true
}

// No retention.
#[distributed_lock(key = "night", wait = "0s", retain = "0s", if_taken = Ok(false))]
async fn none() -> Result<bool, LockError> {
    Ok(true)
}

fn main() {}
