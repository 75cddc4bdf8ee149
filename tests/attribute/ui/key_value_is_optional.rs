use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn optional(id: Option<u64>) -> Result<u64, LockError> {
    Ok(id.unwrap_or_default())
}

#[distributed_lock(key = "order:<name>:<id>")]
async fn by_reference(name: &str, id: &std::option::Option<u64>) -> Result<usize, LockError> {
    Ok(name.len() + id.map_or(0, |id| id as usize))
}

#[distributed_lock(key = "order:<id:?>")]
async fn on_purpose(id: Option<u64>) -> Result<u64, LockError> {
    Ok(id.unwrap_or_default())
}

fn main() {}
