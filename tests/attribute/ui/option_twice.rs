use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", lease = "30s", lease = "60s")]
async fn lease() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", key = "day")]
async fn key() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
