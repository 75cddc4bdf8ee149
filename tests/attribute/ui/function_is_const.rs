use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night")]
const fn constant() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
