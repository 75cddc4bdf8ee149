use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", wait = "367days")]
async fn wait() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", max_hold = "0s")]
async fn no_hold() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", min_hold = "0s")]
async fn no_least() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", min_hold = "2days")]
async fn too_long() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", max_hold = "5s", min_hold = "10s")]
async fn contradiction() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
