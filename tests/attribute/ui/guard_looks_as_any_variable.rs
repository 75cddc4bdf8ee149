#![deny(unused_variables)]

use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", guard = lock)]
async fn unused() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", guard = lock)]
fn unused_here() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", guard = _lock)]
async fn unused_on_purpose() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", guard = lock)]
async fn no_such_method() -> Result<(), LockError> {
    lock.release().await
}

#[distributed_lock(key = "night", guard = lock)]
async fn shadowed(id: u64) -> Result<u64, LockError> {
    let lock = lock.token().as_u64() + id;
    Ok(lock)
}

#[distributed_lock(key = "night", guard = lock, on_error = |_| lock.token().as_u64())]
async fn outside_of_the_body() -> u64 {
    lock.token().as_u64()
}

fn main() {}
