use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "")]
async fn empty(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id")]
async fn unclosed(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<>")]
async fn names_nothing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order>id")]
async fn closes_nothing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id + 1>")]
async fn arithmetic(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id:?>")]
async fn format(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<type>")]
async fn keyword(r#type: u64) -> Result<u64, LockError> {
    Ok(r#type)
}

#[distributed_lock(key = "order:<id>-<line>")]
async fn run_together(id: u64, line: u64) -> Result<u64, LockError> {
    Ok(id + line)
}

fn main() {}
