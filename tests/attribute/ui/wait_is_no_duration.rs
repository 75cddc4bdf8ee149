use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", wait = "for ever")]
async fn words() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = "5")]
async fn no_unit() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = 5)]
async fn number() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
