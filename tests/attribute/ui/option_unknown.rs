use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", leese = "30s")]
async fn mistyped() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", ttl = "30s")]
async fn called_so_elsewhere() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", colour("red"))]
async fn far_from_any() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
