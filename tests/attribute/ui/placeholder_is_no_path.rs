use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id + 1>")]
async fn arithmetic(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id.pow(2)>")]
async fn argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<type>")]
async fn keyword(r#type: u64) -> Result<u64, LockError> {
    Ok(r#type)
}

#[distributed_lock(key = "order:<pair.0x1>")]
async fn index(pair: (u64, u64)) -> Result<u64, LockError> {
    Ok(pair.0)
}

fn main() {}
