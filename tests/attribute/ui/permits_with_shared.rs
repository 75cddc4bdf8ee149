use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "config", shared, permits = 3)]
async fn all_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", permits = most, shared)]
fn an_expression(most: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = shared "config", permits = 3)]
async fn one_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(permits = 3, key = [shared "config", shared "tenant:<ids[]>"])]
async fn each_key(ids: &[u64]) -> Result<(), LockError> {
    Ok(())
}

// Only the second key has permits.
#[distributed_lock(key = [shared "config", "call"], permits = 3)]
async fn one_of_two() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
