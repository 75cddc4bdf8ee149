use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", lease = "0s")]
async fn zero() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease = "9ms")]
async fn too_short() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease = "25h")]
async fn too_long() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease = "half an hour")]
async fn words() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease = "30")]
async fn no_unit() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
