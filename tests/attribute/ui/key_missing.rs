use rlock_core::{LockError, distributed_lock};

#[distributed_lock]
async fn nothing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(lease = "30s")]
async fn only_a_lease() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock("order:1")]
async fn without_its_name() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(lease = "30s")]
fn synchronous() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
