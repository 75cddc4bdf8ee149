use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night")]
fn synchronous() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night")]
const fn constant() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
