use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "")]
async fn text(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = [])]
async fn list(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = ["order:<id>", ""])]
async fn text_in_a_list(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
