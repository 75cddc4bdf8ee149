use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{}")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{order:<id>")]
async fn unclosed(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>}")]
async fn unopened(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "{order}:{<id>}")]
async fn two_pairs(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "{order:{<id>}}")]
async fn nested(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
