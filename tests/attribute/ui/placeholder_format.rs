use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id:d>")]
async fn unknown(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id:>")]
async fn nothing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id:width$>")]
async fn argument(id: u64, width: usize) -> Result<usize, LockError> {
    Ok(id as usize + width)
}

#[distributed_lock(key = "order:<id:p>")]
async fn address(id: &u64) -> Result<u64, LockError> {
    Ok(*id)
}

#[distributed_lock(key = "order:<id:02000>")]
async fn too_wide(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id:>8>")]
async fn alignment(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
