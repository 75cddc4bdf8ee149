use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = shared "config", shared)]
async fn one() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(shared, key = ["order", shared "config", shared "tenant"])]
async fn several() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
