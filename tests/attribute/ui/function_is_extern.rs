use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", on_error = |_| 1)]
extern "C" fn callback(status: i32) -> i32 {
    status
}

#[distributed_lock(key = "night")]
pub unsafe extern "system" fn of_the_system() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night")]
pub extern "Rust" fn ordinary() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
