use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<>")]
async fn nothing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:< >")]
async fn a_space(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
