use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<REGION>")]
async fn unknown() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<limits::REGION>")]
fn in_no_module() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
