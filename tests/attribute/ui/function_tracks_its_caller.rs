use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night")]
#[track_caller]
fn nightly() -> Result<(), LockError> {
    Ok(())
}

#[track_caller]
#[distributed_lock(key = "night")]
fn above() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
