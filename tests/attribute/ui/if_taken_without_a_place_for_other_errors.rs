use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", wait = "0s", if_taken = false)]
async fn no_result() -> bool {
    true
}

#[distributed_lock(key = "night", wait = "0s", if_taken = false)]
fn no_result_here() -> bool {
    true
}

#[distributed_lock(key = "night", wait = "0s", if_taken = ())]
async fn nothing() {}

#[distributed_lock(key = "night", wait = "0s", if_taken = false)]
async fn of_another_type() -> Result<bool, LockError> {
    Ok(true)
}

fn main() {}
