use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = shared "config", shared)]
async fn one() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(shared, key = ["order", shared "config", shared "tenant"])]
async fn several() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["order", shared "tenant", "tenant"])]
async fn shared_and_exclusive() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
