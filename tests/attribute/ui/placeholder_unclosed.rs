use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id")]
async fn to_the_end(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "<order:<id>")]
async fn to_the_next(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order>id")]
async fn never_opened(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
